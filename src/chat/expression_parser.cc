#include "chat/expression_parser.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tuft::chat {

using ast::ExprPtr;

namespace {

constexpr int kMaxNesting = 80;
constexpr int kMaxExpressionDepth = 150;

// Computes the depth of the deepest child of a node.
class ChildDepth {
 public:
  template <typename Node>
  static int of(const Node& node) {
    ChildDepth depth;
    depth.visit(node);
    return depth.deepest_;
  }

 private:
  void add(const ExprPtr& child) {
    if (child != nullptr) deepest_ = std::max(deepest_, child->depth);
  }
  void add(const ast::Exprs& children) {
    for (const ExprPtr& child : children) add(child);
  }
  void add(const ast::Arguments& arguments) {
    add(arguments.positional);
    for (const auto& [name, value] : arguments.named) add(value);
  }

  void visit(const ast::Constant&) {}
  void visit(const ast::Name&) {}
  void visit(const ast::ListLiteral& node) { add(node.items); }
  void visit(const ast::TupleLiteral& node) { add(node.items); }
  void visit(const ast::DictLiteral& node) {
    for (const auto& [key, value] : node.entries) add(key), add(value);
  }
  void visit(const ast::Concat& node) { add(node.parts); }
  void visit(const ast::Unary& node) { add(node.operand); }
  void visit(const ast::Binary& node) { add(node.left), add(node.right); }
  void visit(const ast::Logical& node) { add(node.left), add(node.right); }
  void visit(const ast::Compare& node) {
    add(node.first);
    for (const auto& [op, operand] : node.rest) add(operand);
  }
  void visit(const ast::Conditional& node) { add(node.test), add(node.then), add(node.otherwise); }
  void visit(const ast::Attribute& node) { add(node.object); }
  void visit(const ast::Subscript& node) { add(node.object), add(node.index); }
  void visit(const ast::Slice& node) { add(node.object), add(node.start), add(node.stop), add(node.step); }
  void visit(const ast::Call& node) { add(node.callee), add(node.arguments); }
  void visit(const ast::Filter& node) { add(node.input), add(node.arguments); }
  void visit(const ast::Test& node) { add(node.input), add(node.arguments); }

  int deepest_ = 0;
};

}  // namespace

Status ExpressionParser::Nested::check() const {
  if (parser_.nesting_ > kMaxNesting) return not_supported(parser_.peek().line, "nesting as deep as this");
  return {};
}

const Token& ExpressionParser::peek(size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

Token ExpressionParser::next() {
  Token token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::at_operator(std::string_view text) const {
  return peek().kind == TokenKind::kOperator && peek().text == text;
}

bool ExpressionParser::at_name(std::string_view text) const {
  return peek().kind == TokenKind::kName && peek().text == text;
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!at_operator(text)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!at_name(text)) return false;
  next();
  return true;
}

Status ExpressionParser::expect_operator(std::string_view text) {
  if (skip_operator(text)) return {};
  return syntax_error(peek().line, "expected '" + std::string(text) + "', " + unexpected().message);
}

Status ExpressionParser::expect_name(std::string_view text) {
  if (skip_name(text)) return {};
  return syntax_error(peek().line, "expected '" + std::string(text) + "'");
}

Status ExpressionParser::expect(TokenKind kind) {
  if (peek().kind != kind) return unexpected();
  next();
  return {};
}

Result<std::string> ExpressionParser::expect_any_name() {
  if (peek().kind != TokenKind::kName) return unexpected();
  return next().text;
}

Error ExpressionParser::unexpected() const {
  switch (peek().kind) {
    case TokenKind::kEnd:
      return syntax_error(peek().line, "unexpected end of the template");
    case TokenKind::kVariableEnd:
    case TokenKind::kBlockEnd:
      return syntax_error(peek().line, "unexpected end of the tag");
    case TokenKind::kString:
      return syntax_error(peek().line, "unexpected string");
    default:
      return syntax_error(peek().line, "unexpected '" + peek().text + "'");
  }
}

bool ExpressionParser::leave_macro() {
  const bool uses_caller = macros_.back();
  macros_.pop_back();
  return uses_caller;
}

Result<ExprPtr> ExpressionParser::make(int line, decltype(ast::Expr::node) node) {
  const int depth = 1 + std::visit([](const auto& inner) { return ChildDepth::of(inner); }, node);
  if (depth > kMaxExpressionDepth) return not_supported(line, "an expression as deep as this");
  return std::make_unique<ast::Expr>(ast::Expr{std::move(node), line, depth});
}

Result<ExprPtr> ExpressionParser::expression() {
  const Nested nested(*this);
  TUFT_TRY(nested.check());
  return conditional();
}

Result<ExprPtr> ExpressionParser::tuple(bool with_conditional) {
  const Nested nested(*this);
  TUFT_TRY(nested.check());
  const int line = peek().line;
  ast::Exprs items;
  bool is_tuple = false;
  while (true) {
    const bool ends = peek().kind == TokenKind::kVariableEnd || peek().kind == TokenKind::kBlockEnd || at_operator(")");
    if (ends) break;
    TUFT_ASSIGN(auto item, with_conditional ? conditional() : logical_or());
    items.push_back(std::move(item));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.empty()) return unexpected();
  if (!is_tuple) return std::move(items[0]);
  return make(line, ast::TupleLiteral{std::move(items)});
}

Result<ExprPtr> ExpressionParser::conditional() {
  TUFT_ASSIGN(auto then, logical_or());
  while (at_name("if")) {
    const Token token = next();
    TUFT_ASSIGN(auto test, logical_or());
    ExprPtr otherwise;
    if (skip_name("else")) {
      const Nested nested(*this);
      TUFT_TRY(nested.check());
      TUFT_ASSIGN(otherwise, conditional());
    }
    TUFT_ASSIGN(then, make(token.line, ast::Conditional{std::move(test), std::move(then), std::move(otherwise)}));
  }
  return then;
}

Result<ExprPtr> ExpressionParser::logical_or() {
  TUFT_ASSIGN(auto left, logical_and());
  while (at_name("or")) {
    const Token token = next();
    TUFT_ASSIGN(auto right, logical_and());
    TUFT_ASSIGN(left, make(token.line, ast::Logical{true, std::move(left), std::move(right)}));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::logical_and() {
  TUFT_ASSIGN(auto left, logical_not());
  while (at_name("and")) {
    const Token token = next();
    TUFT_ASSIGN(auto right, logical_not());
    TUFT_ASSIGN(left, make(token.line, ast::Logical{false, std::move(left), std::move(right)}));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::logical_not() {
  if (!at_name("not")) return compare();
  const Nested nested(*this);
  TUFT_TRY(nested.check());
  const Token token = next();
  TUFT_ASSIGN(auto operand, logical_not());
  return make(token.line, ast::Unary{ast::UnaryOperator::kNot, std::move(operand)});
}

std::optional<ast::CompareOperator> ExpressionParser::take_compare_operator() {
  using enum ast::CompareOperator;
  static constexpr std::array<std::pair<std::string_view, ast::CompareOperator>, 6> kSigns = {
      {{"==", kEqual}, {"!=", kUnequal}, {"<", kLess}, {"<=", kLessEqual}, {">", kGreater}, {">=", kGreaterEqual}}};
  for (const auto& [sign, op] : kSigns) {
    if (skip_operator(sign)) return op;
  }
  if (skip_name("in")) return kIn;
  if (at_name("not") && peek(1).kind == TokenKind::kName && peek(1).text == "in") {
    next();
    next();
    return kNotIn;
  }
  return std::nullopt;
}

Result<ExprPtr> ExpressionParser::compare() {
  const int line = peek().line;
  TUFT_ASSIGN(auto first, sum());
  std::vector<std::pair<ast::CompareOperator, ExprPtr>> rest;
  while (const auto op = take_compare_operator()) {
    TUFT_ASSIGN(auto operand, sum());
    rest.emplace_back(*op, std::move(operand));
  }
  if (rest.empty()) return first;
  return make(line, ast::Compare{std::move(first), std::move(rest)});
}

Result<ExprPtr> ExpressionParser::sum() {
  TUFT_ASSIGN(auto left, concat());
  while (at_operator("+") || at_operator("-")) {
    const Token token = next();
    TUFT_ASSIGN(auto right, concat());
    const auto op = token.text == "+" ? ast::BinaryOperator::kAdd : ast::BinaryOperator::kSubtract;
    TUFT_ASSIGN(left, make(token.line, ast::Binary{op, std::move(left), std::move(right)}));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::concat() {
  const int line = peek().line;
  ast::Exprs parts;
  do {
    TUFT_ASSIGN(auto part, product());
    parts.push_back(std::move(part));
  } while (skip_operator("~"));
  if (parts.size() == 1) return std::move(parts[0]);
  return make(line, ast::Concat{std::move(parts)});
}

Result<ExprPtr> ExpressionParser::product() {
  using enum ast::BinaryOperator;
  static constexpr std::array<std::pair<std::string_view, ast::BinaryOperator>, 4> kSigns = {
      {{"*", kMultiply}, {"/", kDivide}, {"//", kFloorDivide}, {"%", kModulo}}};
  TUFT_ASSIGN(auto left, unary(true));
  while (true) {
    if (at_operator("**")) return not_supported(peek().line, "the operator **");
    const auto sign = std::ranges::find_if(kSigns, [&](const auto& one) { return at_operator(one.first); });
    if (sign == kSigns.end()) return left;
    const Token token = next();
    TUFT_ASSIGN(auto right, unary(true));
    const auto* constant = std::get_if<ast::Constant>(&left->node);
    if (sign->second == kModulo && constant != nullptr && constant->value.text() != nullptr) {
      return not_supported(token.line, "the operator % on strings");
    }
    TUFT_ASSIGN(left, make(token.line, ast::Binary{sign->second, std::move(left), std::move(right)}));
  }
}

Result<ExprPtr> ExpressionParser::unary(bool with_filter) {
  const Nested nested(*this);
  TUFT_TRY(nested.check());
  ExprPtr value;
  if (at_operator("+")) return not_supported(peek().line, "the sign +");
  if (at_operator("-")) {
    const Token token = next();
    TUFT_ASSIGN(auto operand, unary(false));
    TUFT_ASSIGN(value, make(token.line, ast::Unary{ast::UnaryOperator::kMinus, std::move(operand)}));
  } else {
    TUFT_ASSIGN(value, primary());
  }
  TUFT_ASSIGN(value, postfix(std::move(value)));
  return with_filter ? filters_and_tests(std::move(value)) : std::move(value);
}

Result<ExprPtr> ExpressionParser::named(const Token& token) {
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make(token.line, ast::Constant{Value(true)});
  if (name == "false" || name == "False") return make(token.line, ast::Constant{Value(false)});
  if (name == "none" || name == "None") return make(token.line, ast::Constant{Value(None{})});
  if (!macros_.empty() && (name == "varargs" || name == "kwargs")) {
    return not_supported(token.line, "the name '" + name + "' in a macro");
  }
  names_.insert(name);
  if (name == "caller") std::fill(macros_.begin(), macros_.end(), true);
  return make(token.line, ast::Name{name});
}

Result<ExprPtr> ExpressionParser::primary() {
  const int line = peek().line;
  switch (peek().kind) {
    case TokenKind::kName:
      return named(next());
    case TokenKind::kString: {
      std::string text;
      while (peek().kind == TokenKind::kString) text += next().text;
      return make(line, ast::Constant{string_value(std::move(text))});
    }
    case TokenKind::kInteger:
      return make(line, ast::Constant{Value(next().integer)});
    case TokenKind::kFloat:
      return make(line, ast::Constant{Value(next().number)});
    default:
      break;
  }
  if (at_operator("[")) return list();
  if (at_operator("{")) return dict();
  if (!skip_operator("(")) return unexpected();
  if (skip_operator(")")) return make(line, ast::TupleLiteral{});
  TUFT_ASSIGN(auto inside, tuple(true));
  TUFT_TRY(expect_operator(")"));
  return inside;
}

Result<ExprPtr> ExpressionParser::list() {
  const Token open = next();
  ast::Exprs items;
  while (!at_operator("]")) {
    if (!items.empty()) TUFT_TRY(expect_operator(","));
    if (at_operator("]")) break;
    TUFT_ASSIGN(auto item, expression());
    items.push_back(std::move(item));
  }
  TUFT_TRY(expect_operator("]"));
  return make(open.line, ast::ListLiteral{std::move(items)});
}

Result<ExprPtr> ExpressionParser::dict() {
  const Token open = next();
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
  while (!at_operator("}")) {
    if (!entries.empty()) TUFT_TRY(expect_operator(","));
    if (at_operator("}")) break;
    TUFT_ASSIGN(auto key, expression());
    TUFT_TRY(expect_operator(":"));
    TUFT_ASSIGN(auto value, expression());
    entries.emplace_back(std::move(key), std::move(value));
  }
  TUFT_TRY(expect_operator("}"));
  return make(open.line, ast::DictLiteral{std::move(entries)});
}

Result<std::string> ExpressionParser::assigned_name() {
  static constexpr std::string_view kConstants[] = {"true", "True", "false", "False", "none", "None"};
  const int line = peek().line;
  TUFT_ASSIGN(std::string name, expect_any_name());
  if (std::ranges::find(kConstants, name) != std::end(kConstants)) {
    return syntax_error(line, "can't assign to '" + name + "'");
  }
  return name;
}

}  // namespace tuft::chat
