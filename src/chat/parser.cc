#include "chat/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "chat/expression_parser.h"
#include "chat/lexer.h"

namespace tuft::chat {
namespace {

constexpr size_t kMaxSourceBytes = size_t{1} << 20;

using EndTags = std::initializer_list<std::string_view>;
using StatementPtr = std::unique_ptr<ast::Statement>;

StatementPtr make_statement(int line, decltype(ast::Statement::node) node) {
  return std::make_unique<ast::Statement>(ast::Statement{std::move(node), line});
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<std::shared_ptr<const ast::Template>> run() {
    auto out = std::make_shared<ast::Template>();
    TUFT_ASSIGN(out->body, block({}));
    out->names = std::move(tokens_.names());
    return std::shared_ptr<const ast::Template>(std::move(out));
  }

 private:
  // Reads up to one of the tags, whose name is then the current token. Without tags, reads up to the end.
  Result<ast::Block> block(EndTags end_tags) {
    const ExpressionParser::Nested nested(tokens_);
    TUFT_TRY(nested.check());
    ast::Block out;
    while (tokens_.peek().kind != TokenKind::kEnd) {
      const Token token = tokens_.next();
      if (token.kind == TokenKind::kData) {
        out.push_back(make_statement(token.line, ast::Text{token.text}));
      } else if (token.kind == TokenKind::kVariableBegin) {
        TUFT_ASSIGN(auto value, tokens_.tuple(true));
        TUFT_TRY(tokens_.expect(TokenKind::kVariableEnd));
        out.push_back(make_statement(token.line, ast::Output{std::move(value)}));
      } else {
        if (std::ranges::any_of(end_tags, [&](std::string_view tag) { return tokens_.at_name(tag); })) return out;
        TUFT_ASSIGN(auto parsed, statement());
        out.push_back(std::move(parsed));
        TUFT_TRY(tokens_.expect(TokenKind::kBlockEnd));
      }
    }
    if (end_tags.size() == 0) return out;
    return syntax_error(tokens_.peek().line,
                        "unexpected end of the template; missing " + std::string(*end_tags.begin()));
  }

  // Reads the end of a tag, the body after it, and the name of the end tag.
  Result<ast::Block> body(std::string_view end_tag) {
    TUFT_TRY(end_head());
    TUFT_ASSIGN(auto out, block({end_tag}));
    tokens_.next();
    return out;
  }

  Status end_head() {
    tokens_.skip_operator(":");
    return tokens_.expect(TokenKind::kBlockEnd);
  }

  // Reads the body of a macro or call. `break` in it cannot end a loop around it.
  Result<ast::Block> function_body(std::string_view end_tag) {
    const int loops = std::exchange(loops_, 0);
    auto out = body(end_tag);
    loops_ = loops;
    return out;
  }

  Result<StatementPtr> statement() {
    const int line = tokens_.peek().line;
    TUFT_ASSIGN(const std::string tag, tokens_.expect_any_name());
    if (tag == "if") return if_tag(line);
    if (tag == "for") return for_tag(line);
    if (tag == "set") return set_tag(line);
    if (tag == "macro") return macro_tag(line);
    if (tag == "call") return call_tag(line);
    if (tag == "filter") return filter_tag(line);
    if (tag == "break" || tag == "continue") return jump_tag(tag, line);
    if (tag == "generation") {
      TUFT_ASSIGN(auto inside, function_body("endgeneration"));
      return make_statement(line, ast::Generation{std::move(inside)});
    }
    for (const std::string_view known :
         {"include", "import", "from", "extends", "block", "autoescape", "with", "print", "do"}) {
      if (tag == known) return not_supported(line, "the tag '" + tag + "'");
    }
    return syntax_error(line, "unknown tag '" + tag + "'");
  }

  Result<StatementPtr> if_tag(int line) {
    ast::If out;
    while (true) {
      TUFT_ASSIGN(auto test, tokens_.tuple(false));
      TUFT_TRY(end_head());
      TUFT_ASSIGN(auto inside, block({"endif", "elif", "else"}));
      out.branches.emplace_back(std::move(test), std::move(inside));
      const Token end = tokens_.next();
      if (end.text == "elif") continue;
      if (end.text == "else") {
        TUFT_ASSIGN(out.otherwise, body("endif"));
      }
      return make_statement(line, std::move(out));
    }
  }

  Result<StatementPtr> for_tag(int line) {
    ast::For out;
    TUFT_TRY(loop_names(out));
    TUFT_TRY(tokens_.expect_name("in"));
    TUFT_ASSIGN(out.iterable, tokens_.tuple(false));
    if (tokens_.skip_name("if")) {
      TUFT_ASSIGN(out.filter, tokens_.expression());
    }
    if (tokens_.at_name("recursive")) return not_supported(line, "a recursive loop");
    TUFT_TRY(end_head());
    ++loops_;
    auto inside = block({"endfor", "else"});
    --loops_;
    TUFT_ASSIGN(out.body, std::move(inside));
    if (tokens_.next().text == "else") {
      TUFT_ASSIGN(out.otherwise, body("endfor"));
    }
    return make_statement(line, std::move(out));
  }

  Status loop_names(ast::For& loop) {
    const bool parenthesized = tokens_.skip_operator("(");
    do {
      if (tokens_.at_operator("(")) return not_supported(tokens_.peek().line, "a loop with nested names");
      TUFT_ASSIGN(auto name, tokens_.assigned_name());
      loop.names.push_back(std::move(name));
    } while (tokens_.skip_operator(","));
    loop.unpacks = loop.names.size() > 1;
    return parenthesized ? tokens_.expect_operator(")") : Status();
  }

  Result<StatementPtr> set_tag(int line) {
    ast::Target target;
    TUFT_ASSIGN(target.name, tokens_.assigned_name());
    if (tokens_.skip_operator(".")) {
      TUFT_ASSIGN(target.attribute, tokens_.expect_any_name());
    }
    if (tokens_.at_operator(",")) return not_supported(line, "an assignment to several names");
    if (tokens_.at_operator("|")) return not_supported(line, "a filter after 'set'");
    if (tokens_.skip_operator("=")) {
      TUFT_ASSIGN(auto value, tokens_.tuple(true));
      return make_statement(line, ast::Set{std::move(target), std::move(value)});
    }
    TUFT_ASSIGN(auto inside, body("endset"));
    return make_statement(line, ast::SetBlock{std::move(target), std::move(inside)});
  }

  Status parameters(ast::Macro& macro) {
    TUFT_TRY(tokens_.expect_operator("("));
    while (!tokens_.at_operator(")")) {
      if (!macro.parameters.empty()) TUFT_TRY(tokens_.expect_operator(","));
      const int line = tokens_.peek().line;
      TUFT_ASSIGN(std::string name, tokens_.assigned_name());
      if (std::ranges::find(macro.parameters, name) != macro.parameters.end()) {
        return syntax_error(line, "the parameter " + name + " twice");
      }
      if (tokens_.skip_operator("=")) {
        TUFT_ASSIGN(auto value, tokens_.expression());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return syntax_error(line, "a parameter without a default after one with a default");
      }
      macro.parameters.push_back(std::move(name));
    }
    return tokens_.expect_operator(")");
  }

  Status macro_body(ast::Macro& macro, std::string_view end_tag) {
    tokens_.enter_macro();
    auto inside = function_body(end_tag);
    const bool reads_caller = tokens_.leave_macro();
    TUFT_ASSIGN(macro.body, std::move(inside));
    macro.uses_caller = reads_caller && std::ranges::find(macro.parameters, "caller") == macro.parameters.end();
    return {};
  }

  Result<StatementPtr> macro_tag(int line) {
    ast::Macro out;
    TUFT_ASSIGN(out.name, tokens_.assigned_name());
    TUFT_TRY(parameters(out));
    TUFT_TRY(macro_body(out, "endmacro"));
    return make_statement(line, std::move(out));
  }

  Result<StatementPtr> call_tag(int line) {
    ast::CallBlock out;
    out.caller.name = "caller";
    if (tokens_.at_operator("(")) return not_supported(line, "a call block with parameters");
    TUFT_ASSIGN(out.call, tokens_.expression());
    if (!std::holds_alternative<ast::Call>(out.call->node)) return syntax_error(line, "expected a call");
    TUFT_TRY(macro_body(out.caller, "endcall"));
    return make_statement(line, std::move(out));
  }

  Result<StatementPtr> filter_tag(int line) {
    ast::FilterBlock out;
    TUFT_ASSIGN(out.filter, tokens_.filter_chain());
    TUFT_ASSIGN(out.body, body("endfilter"));
    return make_statement(line, std::move(out));
  }

  Result<StatementPtr> jump_tag(const std::string& tag, int line) {
    if (loops_ == 0) return syntax_error(line, "'" + tag + "' outside of a loop");
    if (tag == "break") return make_statement(line, ast::Break{});
    return make_statement(line, ast::Continue{});
  }

  ExpressionParser tokens_;
  int loops_ = 0;
};

}  // namespace

Result<std::shared_ptr<const ast::Template>> parse_template(std::string_view source) {
  if (source.size() > kMaxSourceBytes) return invalid_argument("the chat template has more than 1 MiB");
  if (!is_utf8(source)) return invalid_argument("the chat template is not UTF-8");
  TUFT_ASSIGN(auto tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace tuft::chat
