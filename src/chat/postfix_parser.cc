// The part of the expression parser that reads what follows a value: .name, [index], (arguments), | filter, is test.
#include <algorithm>
#include <utility>

#include "chat/expression_parser.h"
#include "chat/filters.h"
#include "chat/methods.h"
#include "chat/tests.h"

namespace tuft::chat {

using ast::ExprPtr;

namespace {

const std::string* constant_text(const ast::Exprs& arguments, size_t index) {
  if (index >= arguments.size()) return nullptr;
  const auto* constant = std::get_if<ast::Constant>(&arguments[index]->node);
  return constant == nullptr ? nullptr : constant->value.text();
}

}  // namespace

Result<ExprPtr> ExpressionParser::postfix(ExprPtr object) {
  while (true) {
    if (at_operator(".")) {
      TUFT_ASSIGN(object, dot(std::move(object)));
    } else if (at_operator("[")) {
      TUFT_ASSIGN(object, subscript(std::move(object)));
    } else if (at_operator("(")) {
      TUFT_ASSIGN(object, call(std::move(object)));
    } else {
      return object;
    }
  }
}

Result<ExprPtr> ExpressionParser::filters_and_tests(ExprPtr input) {
  while (true) {
    if (at_operator("|")) {
      next();
      TUFT_ASSIGN(input, filter(std::move(input)));
    } else if (at_name("is")) {
      TUFT_ASSIGN(input, test(std::move(input)));
    } else if (at_operator("(")) {
      TUFT_ASSIGN(input, call(std::move(input)));
    } else {
      return input;
    }
  }
}

Result<ExprPtr> ExpressionParser::dot(ExprPtr object) {
  const Token sign = next();
  if (peek().kind == TokenKind::kInteger) {
    TUFT_ASSIGN(auto index, make(sign.line, ast::Constant{Value(next().integer)}));
    return make(sign.line, ast::Subscript{std::move(object), std::move(index)});
  }
  TUFT_ASSIGN(std::string name, expect_any_name());
  return make(sign.line, ast::Attribute{std::move(object), std::move(name)});
}

// Returns null for an empty part.
Result<ExprPtr> ExpressionParser::slice_part() {
  if (at_operator(":") || at_operator("]") || at_operator(",")) return ExprPtr();
  return expression();
}

Result<ExprPtr> ExpressionParser::subscript(ExprPtr object) {
  const Token open = next();
  TUFT_ASSIGN(auto first, slice_part());
  if (at_operator(":")) {
    ExprPtr parts[2];
    for (ExprPtr& part : parts) {
      if (!skip_operator(":")) break;
      TUFT_ASSIGN(part, slice_part());
    }
    TUFT_TRY(expect_operator("]"));
    return make(open.line, ast::Slice{std::move(object), std::move(first), std::move(parts[0]), std::move(parts[1])});
  }
  if (first == nullptr) return unexpected();
  TUFT_TRY(expect_operator("]"));
  return make(open.line, ast::Subscript{std::move(object), std::move(first)});
}

Result<ast::Arguments> ExpressionParser::arguments() {
  ast::Arguments out;
  TUFT_TRY(expect_operator("("));
  while (!at_operator(")")) {
    if (!out.positional.empty() || !out.named.empty()) TUFT_TRY(expect_operator(","));
    if (at_operator(")")) break;
    if (at_operator("*") || at_operator("**")) return not_supported(peek().line, "an argument after " + peek().text);
    const bool is_named =
        peek().kind == TokenKind::kName && peek(1).kind == TokenKind::kOperator && peek(1).text == "=";
    if (!is_named) {
      if (!out.named.empty()) return syntax_error(peek().line, "a positional argument after a named one");
      TUFT_ASSIGN(auto value, expression());
      out.positional.push_back(std::move(value));
      continue;
    }
    std::string name = next().text;
    next();
    const auto taken = [&](const auto& argument) { return argument.first == name; };
    if (std::ranges::any_of(out.named, taken)) return syntax_error(peek().line, "the argument " + name + " twice");
    TUFT_ASSIGN(auto value, expression());
    out.named.emplace_back(std::move(name), std::move(value));
  }
  TUFT_TRY(expect_operator(")"));
  return out;
}

Result<ExprPtr> ExpressionParser::call(ExprPtr callee) {
  const int line = peek().line;
  if (const auto* attribute = std::get_if<ast::Attribute>(&callee->node); attribute && !is_method(attribute->name)) {
    return not_supported(line, "the method '" + attribute->name + "'");
  }
  if (const auto* name = std::get_if<ast::Name>(&callee->node)) {
    if (name->name == "lipsum" || name->name == "cycler" || name->name == "joiner") {
      return not_supported(line, "the function '" + name->name + "'");
    }
  }
  TUFT_ASSIGN(auto values, arguments());
  return make(line, ast::Call{std::move(callee), std::move(values)});
}

Result<ExprPtr> ExpressionParser::filter(ExprPtr input) {
  const int line = peek().line;
  TUFT_ASSIGN(const std::string name, expect_any_name());
  const FilterEntry* entry = find_filter(name);
  if (entry == nullptr) return not_supported(line, "the filter '" + name + "'");
  ast::Arguments values;
  if (at_operator("(")) {
    TUFT_ASSIGN(values, arguments());
  }
  if (const std::string* inner = constant_text(values.positional, 0);
      inner && name == "map" && find_filter(*inner) == nullptr) {
    return not_supported(line, "the filter '" + *inner + "'");
  }
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    const std::string* inner = constant_text(values.positional, name.ends_with("attr") ? 1 : 0);
    if (inner && find_test(*inner) == nullptr) return not_supported(line, "the test '" + *inner + "'");
  }
  return make(line, ast::Filter{std::move(input), entry, std::move(values)});
}

Result<ExprPtr> ExpressionParser::filter_chain() {
  ExprPtr chain;
  do {
    TUFT_ASSIGN(chain, filter(std::move(chain)));
  } while (skip_operator("|"));
  return chain;
}

Result<ast::Arguments> ExpressionParser::test_arguments() {
  if (at_operator("(")) return arguments();
  const TokenKind kind = peek().kind;
  const bool has_argument = kind == TokenKind::kName || kind == TokenKind::kString || kind == TokenKind::kInteger ||
                            kind == TokenKind::kFloat || at_operator("[") || at_operator("{");
  ast::Arguments out;
  if (!has_argument || at_name("else") || at_name("or") || at_name("and")) return out;
  if (at_name("is")) return syntax_error(peek().line, "tests in a chain; put the first one in parentheses");
  TUFT_ASSIGN(auto value, primary());
  TUFT_ASSIGN(value, postfix(std::move(value)));
  out.positional.push_back(std::move(value));
  return out;
}

Result<ExprPtr> ExpressionParser::test(ExprPtr input) {
  const Token is = next();
  const bool negated = skip_name("not");
  TUFT_ASSIGN(const std::string name, expect_any_name());
  const TestEntry* entry = find_test(name);
  if (entry == nullptr) return not_supported(is.line, "the test '" + name + "'");
  TUFT_ASSIGN(auto values, test_arguments());
  TUFT_ASSIGN(auto result, make(is.line, ast::Test{std::move(input), entry, std::move(values)}));
  if (!negated) return result;
  return make(is.line, ast::Unary{ast::UnaryOperator::kNot, std::move(result)});
}

}  // namespace tuft::chat
