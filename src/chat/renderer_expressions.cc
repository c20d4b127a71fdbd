#include <algorithm>
#include <utility>

#include "chat/filters.h"
#include "chat/methods.h"
#include "chat/operators.h"
#include "chat/renderer.h"
#include "chat/tests.h"
#include "chat/text.h"

namespace tuft::chat {

Result<Value> Renderer::evaluate(const ast::Expr& expr, Scope* scope) {
  const Budget::Level level(budget_);
  TUFT_TRY(level.check());
  return std::visit([&](const auto& node) { return eval(node, scope); }, expr.node);
}

Result<Values> Renderer::evaluate_all(const ast::Exprs& expressions, Scope* scope) {
  Values out;
  out.reserve(expressions.size());
  for (const auto& expr : expressions) {
    TUFT_ASSIGN(auto value, evaluate(*expr, scope));
    out.push_back(std::move(value));
  }
  return out;
}

Result<Value> Renderer::evaluate_or_none(const ast::ExprPtr& expr, Scope* scope) {
  if (expr == nullptr) return Value(None{});
  return evaluate(*expr, scope);
}

Result<CallArguments> Renderer::evaluate_arguments(const ast::Arguments& arguments, Scope* scope) {
  CallArguments out;
  TUFT_ASSIGN(out.positional, evaluate_all(arguments.positional, scope));
  for (const auto& [name, expr] : arguments.named) {
    TUFT_ASSIGN(auto value, evaluate(*expr, scope));
    out.named.emplace_back(name, std::move(value));
  }
  return out;
}

Result<Value> Renderer::eval(const ast::Constant& node, Scope*) {
  return node.value;
}

Result<Value> Renderer::eval(const ast::Name& node, Scope* scope) {
  if (const Value* found = scope->find(node.name)) return *found;
  if (is_function(node.name)) {
    return Value(std::make_shared<const Callable>(Callable{Callable::Kind::kFunction, node.name, Value(), nullptr}));
  }
  return Value(undefined("'" + node.name + "' is undefined"));
}

Result<Value> Renderer::eval(const ast::ListLiteral& node, Scope* scope) {
  TUFT_ASSIGN(Values items, evaluate_all(node.items, scope));
  return make_list(budget_, std::move(items));
}

Result<Value> Renderer::eval(const ast::TupleLiteral& node, Scope* scope) {
  TUFT_ASSIGN(Values items, evaluate_all(node.items, scope));
  return make_tuple(budget_, std::move(items));
}

Result<Value> Renderer::eval(const ast::DictLiteral& node, Scope* scope) {
  Dict dict;
  for (const auto& [key_expr, value_expr] : node.entries) {
    TUFT_ASSIGN(Value key, evaluate(*key_expr, scope));
    TUFT_ASSIGN(Value value, evaluate(*value_expr, scope));
    TUFT_TRY(dict.insert(budget_, std::move(key), std::move(value)));
  }
  return make_dict(budget_, std::move(dict));
}

Result<Value> Renderer::eval(const ast::Concat& node, Scope* scope) {
  std::string out;
  for (const auto& part : node.parts) {
    TUFT_ASSIGN(const Value value, evaluate(*part, scope));
    if (const auto* text = value.text()) {
      out += *text;
    } else {
      TUFT_ASSIGN(const std::string made, to_text(budget_, value));
      out += made;
    }
    TUFT_TRY(budget_.scan(out.size()));
  }
  return make_string(budget_, std::move(out));
}

Result<Value> Renderer::eval(const ast::Unary& node, Scope* scope) {
  TUFT_ASSIGN(const Value operand, evaluate(*node.operand, scope));
  return apply_unary(node.op, operand);
}

Result<Value> Renderer::eval(const ast::Binary& node, Scope* scope) {
  TUFT_ASSIGN(const Value left, evaluate(*node.left, scope));
  TUFT_ASSIGN(const Value right, evaluate(*node.right, scope));
  return apply_binary(budget_, node.op, left, right);
}

Result<Value> Renderer::eval(const ast::Logical& node, Scope* scope) {
  TUFT_ASSIGN(Value left, evaluate(*node.left, scope));
  if (left.truthy() == node.is_or) return left;
  return evaluate(*node.right, scope);
}

Result<Value> Renderer::eval(const ast::Compare& node, Scope* scope) {
  TUFT_ASSIGN(Value left, evaluate(*node.first, scope));
  for (const auto& [op, operand] : node.rest) {
    TUFT_ASSIGN(Value right, evaluate(*operand, scope));
    TUFT_ASSIGN(const bool holds, compare(budget_, op, left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Renderer::eval(const ast::Conditional& node, Scope* scope) {
  TUFT_ASSIGN(const Value test, evaluate(*node.test, scope));
  if (test.truthy()) return evaluate(*node.then, scope);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise, scope);
  return Value(undefined("the inline if-expression evaluated to false and no else section was defined."));
}

Result<Value> Renderer::eval(const ast::Attribute& node, Scope* scope) {
  TUFT_ASSIGN(const Value object, evaluate(*node.object, scope));
  return get_attribute(budget_, object, node.name);
}

Result<Value> Renderer::eval(const ast::Subscript& node, Scope* scope) {
  TUFT_ASSIGN(const Value object, evaluate(*node.object, scope));
  TUFT_ASSIGN(const Value index, evaluate(*node.index, scope));
  return get_item(budget_, object, index);
}

Result<Value> Renderer::eval(const ast::Slice& node, Scope* scope) {
  TUFT_ASSIGN(const Value object, evaluate(*node.object, scope));
  TUFT_ASSIGN(const Value start, evaluate_or_none(node.start, scope));
  TUFT_ASSIGN(const Value stop, evaluate_or_none(node.stop, scope));
  TUFT_ASSIGN(const Value step, evaluate_or_none(node.step, scope));
  return get_slice(budget_, object, start, stop, step);
}

Result<Value> Renderer::eval(const ast::Call& node, Scope* scope) {
  TUFT_ASSIGN(const Value callee, evaluate(*node.callee, scope));
  TUFT_ASSIGN(CallArguments arguments, evaluate_arguments(node.arguments, scope));
  return call(callee, std::move(arguments));
}

Result<Value> Renderer::eval(const ast::Filter& node, Scope* scope) {
  Value input = filtered_block_;
  if (node.input != nullptr) {
    TUFT_ASSIGN(input, evaluate(*node.input, scope));
  }
  TUFT_ASSIGN(const CallArguments arguments, evaluate_arguments(node.arguments, scope));
  return node.filter->apply(budget_, input, arguments);
}

Result<Value> Renderer::eval(const ast::Test& node, Scope* scope) {
  TUFT_ASSIGN(const Value input, evaluate(*node.input, scope));
  TUFT_ASSIGN(const CallArguments arguments, evaluate_arguments(node.arguments, scope));
  TUFT_ASSIGN(const bool holds, node.test->apply(budget_, input, arguments));
  return Value(holds);
}

Result<Value> Renderer::call(const Value& callee, CallArguments arguments) {
  if (const auto* missing = callee.as<Undefined>()) return template_error(*missing->why);
  const auto* callable = callee.as<std::shared_ptr<const Callable>>();
  if (callable == nullptr) return template_error("'" + std::string(callee.type_name()) + "' object is not callable");
  const Callable& target = **callable;
  switch (target.kind) {
    case Callable::Kind::kFunction:
      return call_function(functions_, target.name, arguments);
    case Callable::Kind::kMethod:
      return call_method(budget_, target.receiver, target.name, arguments);
    case Callable::Kind::kMacro:
      break;
  }
  return call_macro(*static_cast<const Closure*>(target.closure), std::move(arguments));
}

Value Renderer::make_macro(const ast::Macro& macro, Scope* scope) {
  scope->capture();
  const Closure& closure = closures_.emplace_back(Closure{&macro, scope});
  return Value(std::make_shared<const Callable>(Callable{Callable::Kind::kMacro, macro.name, Value(), &closure}));
}

namespace {

// Removes the argument of this name and returns it.
std::optional<Value> take_named(CallArguments& arguments, std::string_view name) {
  const auto found = std::ranges::find_if(arguments.named, [&](const auto& one) { return one.first == name; });
  if (found == arguments.named.end()) return std::nullopt;
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

}  // namespace

Status Renderer::bind_parameters(const ast::Macro& macro, CallArguments& arguments, Scope* scope) {
  const size_t count = macro.parameters.size();
  const size_t given = std::min(arguments.positional.size(), count);
  std::vector<bool> has_value(count, true);
  for (size_t i = 0; i < count; ++i) {
    std::optional<Value> value;
    if (i < given) {
      value = arguments.positional[i];
    } else {
      value = take_named(arguments, macro.parameters[i]);
    }
    has_value[i] = value.has_value();
    if (value) scope->set(macro.parameters[i], std::move(*value));
  }
  for (size_t i = 0; i < count; ++i) {
    if (has_value[i]) continue;
    Value value = undefined("parameter '" + macro.parameters[i] + "' was not provided");
    const size_t without = count - macro.defaults.size();
    if (i >= without) {
      TUFT_ASSIGN(value, evaluate(*macro.defaults[i - without], scope));
    }
    scope->set(macro.parameters[i], std::move(value));
  }
  return {};
}

Result<Value> Renderer::call_macro(const Closure& closure, CallArguments arguments) {
  const Budget::Level level(budget_);
  TUFT_TRY(level.check());
  const ast::Macro& macro = *closure.macro;
  const Scopes::Inner inner(scopes_, closure.scope);
  TUFT_TRY(bind_parameters(macro, arguments, inner.get()));
  if (macro.uses_caller) {
    inner.get()->set("caller", take_named(arguments, "caller").value_or(Value(undefined("No caller defined"))));
  }
  if (!arguments.named.empty()) {
    return template_error("macro '" + macro.name + "' takes no keyword argument '" + arguments.named[0].first + "'");
  }
  const size_t count = macro.parameters.size();
  if (arguments.positional.size() > count) {
    return template_error("macro '" + macro.name + "' takes at most " + std::to_string(count) + " argument(s)");
  }
  Value text;
  TUFT_TRY(capture(macro.body, inner.get(), text));
  return text;
}

}  // namespace tuft::chat
