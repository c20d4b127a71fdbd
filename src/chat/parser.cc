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
  // Up to one of the tags, whose name is then the current token; without tags, up to the end.
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
        TUFT_TRY(statement(out));
        TUFT_TRY(tokens_.expect(TokenKind::kBlockEnd));
      }
    }
    if (end_tags.size() == 0) return out;
    return syntax_error(tokens_.peek().line,
                        "unexpected end of the template; missing " + std::string(*end_tags.begin()));
  }

  // The body of a tag, behind its head; its end tag's name is taken.
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

  // Break and continue do not reach out of the functions that Jinja makes of these bodies.
  Result<ast::Block> function_body(std::string_view end_tag) {
    const int loops = std::exchange(loops_, 0);
    auto out = body(end_tag);
    loops_ = loops;
    return out;
  }

  Status statement(ast::Block& out) {
    const int line = tokens_.peek().line;
    TUFT_ASSIGN(const std::string tag, tokens_.expect_any_name());
    TUFT_ASSIGN(auto parsed, tagged(tag, line));
    if (parsed != nullptr) out.push_back(std::move(parsed));
    while (!pending_.empty()) {
      out.push_back(std::move(pending_.front()));
      pending_.erase(pending_.begin());
    }
    return {};
  }

  Result<StatementPtr> tagged(const std::string& tag, int line) {
    if (tag == "if") return if_tag(line);
    if (tag == "for") return for_tag(line);
    if (tag == "set") return set_tag(line);
    if (tag == "macro") return macro_tag(line);
    if (tag == "call") return call_tag(line);
    if (tag == "filter") return filter_tag(line);
    if (tag == "with") return with_tag(line);
    if (tag == "print") return print_tag(line);
    if (tag == "break" || tag == "continue") return jump_tag(tag, line);
    if (tag == "generation") {
      TUFT_ASSIGN(auto inside, function_body("endgeneration"));
      return make_statement(line, ast::Generation{std::move(inside)});
    }
    for (const std::string_view known : {"include", "import", "from", "extends", "block", "autoescape"}) {
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
    TUFT_ASSIGN(out.target, tokens_.target(false, true, "in"));
    TUFT_TRY(tokens_.expect_name("in"));
    TUFT_ASSIGN(out.iterable, tokens_.tuple(false, "recursive"));
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

  Result<StatementPtr> set_tag(int line) {
    TUFT_ASSIGN(auto target, tokens_.target(true, true));
    if (tokens_.skip_operator("=")) {
      TUFT_ASSIGN(auto value, tokens_.tuple(true));
      return make_statement(line, ast::Set{std::move(target), std::move(value)});
    }
    if (target.is_tuple) return not_supported(line, "a block for several names");
    TUFT_ASSIGN(auto filter, tokens_.filter_chain(false));
    TUFT_ASSIGN(auto inside, body("endset"));
    return make_statement(line, ast::SetBlock{std::move(target), std::move(filter), std::move(inside)});
  }

  Status parameters(ast::Macro& macro) {
    TUFT_TRY(tokens_.expect_operator("("));
    while (!tokens_.at_operator(")")) {
      if (!macro.parameters.empty()) TUFT_TRY(tokens_.expect_operator(","));
      const int line = tokens_.peek().line;
      TUFT_ASSIGN(auto parameter, tokens_.target(false, false));
      if (parameter.is_tuple) return syntax_error(line, "a tuple as a parameter");
      if (std::ranges::find(macro.parameters, parameter.name) != macro.parameters.end()) {
        return syntax_error(line, "the parameter " + parameter.name + " twice");
      }
      if (tokens_.skip_operator("=")) {
        TUFT_ASSIGN(auto value, tokens_.expression());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return syntax_error(line, "a parameter without a default behind one with a default");
      }
      macro.parameters.push_back(std::move(parameter.name));
    }
    return tokens_.expect_operator(")");
  }

  Status macro_body(ast::Macro& macro, std::string_view end_tag) {
    tokens_.enter_macro();
    auto inside = function_body(end_tag);
    const auto special = tokens_.leave_macro();
    TUFT_ASSIGN(macro.body, std::move(inside));
    const auto is_parameter = [&](std::string_view name) {
      return std::ranges::find(macro.parameters, name) != macro.parameters.end();
    };
    macro.uses_caller = special.used.contains("caller") && !is_parameter("caller");
    macro.uses_varargs = special.used.contains("varargs") && !is_parameter("varargs");
    macro.uses_kwargs = special.used.contains("kwargs") && !is_parameter("kwargs");
    return {};
  }

  Result<StatementPtr> macro_tag(int line) {
    ast::Macro out;
    TUFT_ASSIGN(auto name, tokens_.target(false, false));
    if (name.is_tuple) return syntax_error(line, "a macro needs a name");
    out.name = std::move(name.name);
    TUFT_TRY(parameters(out));
    TUFT_TRY(macro_body(out, "endmacro"));
    return make_statement(line, std::move(out));
  }

  Result<StatementPtr> call_tag(int line) {
    ast::CallBlock out;
    out.caller.name = "caller";
    if (tokens_.at_operator("(")) TUFT_TRY(parameters(out.caller));
    TUFT_ASSIGN(out.call, tokens_.expression());
    if (!std::holds_alternative<ast::Call>(out.call->node)) return syntax_error(line, "expected a call");
    TUFT_TRY(macro_body(out.caller, "endcall"));
    return make_statement(line, std::move(out));
  }

  Result<StatementPtr> filter_tag(int line) {
    ast::FilterBlock out;
    TUFT_ASSIGN(out.filter, tokens_.filter_chain(true));
    TUFT_ASSIGN(out.body, body("endfilter"));
    return make_statement(line, std::move(out));
  }

  Result<StatementPtr> with_tag(int line) {
    ast::With out;
    while (tokens_.peek().kind != TokenKind::kBlockEnd && !tokens_.at_operator(":")) {
      if (!out.values.empty()) TUFT_TRY(tokens_.expect_operator(","));
      TUFT_ASSIGN(auto target, tokens_.target(false, false));
      TUFT_TRY(tokens_.expect_operator("="));
      TUFT_ASSIGN(auto value, tokens_.expression());
      out.values.emplace_back(std::move(target), std::move(value));
    }
    TUFT_ASSIGN(out.body, body("endwith"));
    return make_statement(line, std::move(out));
  }

  // {% print a, b %} is {{ a }}{{ b }}.
  Result<StatementPtr> print_tag(int line) {
    bool first = true;
    while (tokens_.peek().kind != TokenKind::kBlockEnd) {
      if (!std::exchange(first, false)) TUFT_TRY(tokens_.expect_operator(","));
      TUFT_ASSIGN(auto value, tokens_.expression());
      pending_.push_back(make_statement(line, ast::Output{std::move(value)}));
    }
    return StatementPtr();
  }

  Result<StatementPtr> jump_tag(const std::string& tag, int line) {
    if (loops_ == 0) return syntax_error(line, "'" + tag + "' outside of a loop");
    if (tag == "break") return make_statement(line, ast::Break{});
    return make_statement(line, ast::Continue{});
  }

  ExpressionParser tokens_;
  int loops_ = 0;
  ast::Block pending_;
};

}  // namespace

Result<std::shared_ptr<const ast::Template>> parse_template(std::string_view source) {
  if (source.size() > kMaxSourceBytes) return invalid_argument("the chat template has more than 1 MiB");
  if (!is_utf8(source)) return invalid_argument("the chat template is not UTF-8");
  TUFT_ASSIGN(auto tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace tuft::chat
