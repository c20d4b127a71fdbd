// Reads expressions from the tokens of a template, with the precedence of Jinja.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/ast.h"
#include "chat/lexer.h"

namespace tuft::chat {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // a, b: a tuple; a: the expression itself. `stops_at`: a name that ends a tuple after its comma.
  Result<ast::ExprPtr> tuple(bool with_conditional, std::string_view stops_at = {});
  Result<ast::ExprPtr> expression();
  // | name(...) | ...; the innermost filter has no input. Null if there is no "|" and `has_bar` is false. With
  // `starts_inline` the first filter's name comes without its "|".
  Result<ast::ExprPtr> filter_chain(bool starts_inline);
  Result<ast::Target> target(bool with_namespace, bool with_tuple, std::string_view stops_at = {});

  const Token& peek(size_t ahead = 0) const;
  Token next();
  bool at_operator(std::string_view text) const;
  bool at_name(std::string_view text) const;
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  Status expect_operator(std::string_view text);
  Status expect_name(std::string_view text);
  Status expect(TokenKind kind);
  Result<std::string> expect_any_name();
  Error unexpected() const;  // the current token

  // The names looked up so far.
  std::set<std::string, std::less<>>& names() { return names_; }

  // A macro's body tells whether it uses the names that a macro gets unasked.
  struct SpecialNames {
    std::set<std::string, std::less<>> stored;
    std::set<std::string, std::less<>> used;
  };
  void enter_macro() { macros_.emplace_back(); }
  SpecialNames leave_macro();

  // Tags and expressions in each other.
  class Nested;

 private:
  Result<ast::ExprPtr> conditional();
  Result<ast::ExprPtr> logical_or();
  Result<ast::ExprPtr> logical_and();
  Result<ast::ExprPtr> logical_not();
  Result<ast::ExprPtr> compare();
  Result<ast::ExprPtr> sum();
  Result<ast::ExprPtr> concat();
  Result<ast::ExprPtr> product();
  Result<ast::ExprPtr> power();
  Result<ast::ExprPtr> unary(bool with_filter);
  Result<ast::ExprPtr> primary();
  Result<ast::ExprPtr> named(const Token& token);
  Result<ast::ExprPtr> list();
  Result<ast::ExprPtr> dict();
  Result<ast::ExprPtr> postfix(ast::ExprPtr object);
  Result<ast::ExprPtr> filters_and_tests(ast::ExprPtr input);
  Result<ast::ExprPtr> dot(ast::ExprPtr object);
  Result<ast::ExprPtr> subscript(ast::ExprPtr object);
  Result<ast::ExprPtr> slice_part();
  Result<ast::ExprPtr> call(ast::ExprPtr callee);
  Result<ast::ExprPtr> filter(ast::ExprPtr input);
  Result<ast::ExprPtr> test(ast::ExprPtr input);
  Result<ast::Arguments> test_arguments();
  Result<ast::Arguments> arguments();
  Result<ast::Target> single_target(bool with_namespace);
  std::optional<ast::CompareOperator> take_compare_operator();
  Result<ast::ExprPtr> make(int line, decltype(ast::Expr::node) node);
  void note_load(const std::string& name);
  void note_store(const std::string& name);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::set<std::string, std::less<>> names_;
  std::vector<SpecialNames> macros_;
};

// Counts one level of nesting as long as it lives.
class ExpressionParser::Nested {
 public:
  explicit Nested(ExpressionParser& parser) : parser_(parser) { ++parser_.nesting_; }
  ~Nested() { --parser_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

  Status check() const;

 private:
  ExpressionParser& parser_;
};

}  // namespace tuft::chat
