// Reads expressions from the tokens of a template. The precedence of operators is that of Jinja.
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

// A recursive descent parser. It has many methods: one for each rule of the grammar.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Reads `a`, or `a, b` as a tuple. Without `with_conditional`, an `if` ends the expression.
  Result<ast::ExprPtr> tuple(bool with_conditional);
  Result<ast::ExprPtr> expression();
  // Reads name(...) | name(...) | ...; the innermost filter has no input.
  Result<ast::ExprPtr> filter_chain();
  // Reads a name that a statement assigns to.
  Result<std::string> assigned_name();

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
  Error unexpected() const;  // names the current token

  // All names that expressions have read so far.
  std::set<std::string, std::less<>>& names() { return names_; }

  // Surround the body of a macro. leave_macro returns whether the body read the name `caller`.
  void enter_macro() { macros_.push_back(false); }
  bool leave_macro();

  // Counts one level of nested tags or expressions as long as it lives.
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
  std::optional<ast::CompareOperator> take_compare_operator();
  Result<ast::ExprPtr> make(int line, decltype(ast::Expr::node) node);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::set<std::string, std::less<>> names_;
  std::vector<bool> macros_;  // one for each open macro: whether its body reads `caller`
};

class ExpressionParser::Nested {
 public:
  explicit Nested(ExpressionParser& parser) : parser_(parser) { ++parser_.nesting_; }
  ~Nested() { --parser_.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

  // Fails if the nesting is too deep.
  Status check() const;

 private:
  ExpressionParser& parser_;
};

}  // namespace tuft::chat
