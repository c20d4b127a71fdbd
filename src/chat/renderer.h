// Renders a parsed template for one conversation.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "chat/arguments.h"
#include "chat/ast.h"
#include "chat/budget.h"
#include "chat/functions.h"
#include "chat/scope.h"
#include "chat/value.h"

namespace tuft::chat {

// Renders once, on one thread. The template must outlive the renderer. It has many methods: one for each kind of
// statement and expression.
class Renderer {
 public:
  Renderer(Budget& budget, Nanos now) : budget_(budget), functions_{budget, now, namespaces_} {}

  // Defines a global name. The text of `name` must outlive the renderer.
  void define(std::string_view name, Value value) { root_.get()->set(name, std::move(value)); }
  Result<std::string> run(const ast::Template& root);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // A macro with the scope of its definition.
  struct Closure {
    const ast::Macro* macro;
    Scope* scope;
  };

  // renderer_expressions.cc
  Result<Value> evaluate(const ast::Expr& expr, Scope* scope);
  Result<Value> eval(const ast::Constant& node, Scope* scope);
  Result<Value> eval(const ast::Name& node, Scope* scope);
  Result<Value> eval(const ast::ListLiteral& node, Scope* scope);
  Result<Value> eval(const ast::TupleLiteral& node, Scope* scope);
  Result<Value> eval(const ast::DictLiteral& node, Scope* scope);
  Result<Value> eval(const ast::Concat& node, Scope* scope);
  Result<Value> eval(const ast::Unary& node, Scope* scope);
  Result<Value> eval(const ast::Binary& node, Scope* scope);
  Result<Value> eval(const ast::Logical& node, Scope* scope);
  Result<Value> eval(const ast::Compare& node, Scope* scope);
  Result<Value> eval(const ast::Conditional& node, Scope* scope);
  Result<Value> eval(const ast::Attribute& node, Scope* scope);
  Result<Value> eval(const ast::Subscript& node, Scope* scope);
  Result<Value> eval(const ast::Slice& node, Scope* scope);
  Result<Value> eval(const ast::Call& node, Scope* scope);
  Result<Value> eval(const ast::Filter& node, Scope* scope);
  Result<Value> eval(const ast::Test& node, Scope* scope);
  Result<Values> evaluate_all(const ast::Exprs& expressions, Scope* scope);
  Result<Value> evaluate_or_none(const ast::ExprPtr& expr, Scope* scope);
  Result<CallArguments> evaluate_arguments(const ast::Arguments& arguments, Scope* scope);
  Result<Value> call(const Value& callee, CallArguments arguments);
  Result<Value> call_macro(const Closure& closure, CallArguments arguments);
  Status bind_parameters(const ast::Macro& macro, CallArguments& arguments, Scope* scope);
  Value make_macro(const ast::Macro& macro, Scope* scope);

  // renderer.cc
  Result<Flow> execute(const ast::Block& block, Scope* scope);
  Result<Flow> exec(const ast::Text& node, Scope* scope);
  Result<Flow> exec(const ast::Output& node, Scope* scope);
  Result<Flow> exec(const ast::If& node, Scope* scope);
  Result<Flow> exec(const ast::For& node, Scope* scope);
  Result<Flow> exec(const ast::Set& node, Scope* scope);
  Result<Flow> exec(const ast::SetBlock& node, Scope* scope);
  Result<Flow> exec(const ast::Macro& node, Scope* scope);
  Result<Flow> exec(const ast::CallBlock& node, Scope* scope);
  Result<Flow> exec(const ast::FilterBlock& node, Scope* scope);
  Result<Flow> exec(const ast::Generation& node, Scope* scope);
  Result<Flow> exec(const ast::Break& node, Scope* scope);
  Result<Flow> exec(const ast::Continue& node, Scope* scope);
  Result<Flow> iterate(const ast::For& node, const std::shared_ptr<Loop>& loop, Scope* scope);
  Status unpack(const ast::For& node, const Value& item, Scope* scope);
  Status assign(const ast::Target& target, Value value, Scope* scope);
  Status write(std::string_view text);
  // Renders a body into `text` instead of the output.
  Result<Flow> capture(const ast::Block& body, Scope* scope, Value& text);

  Budget& budget_;
  std::deque<Namespace> namespaces_;
  std::deque<Closure> closures_;
  Scopes scopes_;
  Scopes::Inner root_{scopes_, nullptr};
  FunctionContext functions_;
  std::string* out_ = nullptr;
  Value filtered_block_;  // the text of the innermost FilterBlock
};

}  // namespace tuft::chat
