#include "chat/renderer.h"

#include <utility>

#include "chat/text.h"

namespace tuft::chat {
namespace {

// Adds the line to an error message, unless an inner statement has done so.
Error at_line(Error error, int line) {
  static constexpr std::string_view kPrefix = "chat template, line ";
  const bool is_ours = error.reason == "template_failed" || error.reason == "template_unsupported";
  if (!is_ours || error.message.starts_with(kPrefix)) return error;
  if (error.reason == "template_unsupported") error.message += " is not supported";
  error.message = std::string(kPrefix) + std::to_string(line) + ": " + error.message;
  return error;
}

}  // namespace

Result<std::string> Renderer::run(const ast::Template& root) {
  std::string out;
  out_ = &out;
  TUFT_TRY(execute(root.body, root_.get()));
  return out;
}

Status Renderer::write(std::string_view text) {
  TUFT_TRY(budget_.check_output(out_->size() + text.size()));
  TUFT_TRY(budget_.scan(text.size()));
  out_->append(text);
  return {};
}

Result<Renderer::Flow> Renderer::execute(const ast::Block& block, Scope* scope) {
  const Budget::Level level(budget_);
  TUFT_TRY(level.check());
  for (const auto& statement : block) {
    TUFT_TRY(budget_.step());
    auto flow = std::visit([&](const auto& node) { return exec(node, scope); }, statement->node);
    if (!flow.ok()) return at_line(std::move(flow).error(), statement->line);
    if (*flow != Flow::kNext) return *flow;
  }
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::exec(const ast::Text& node, Scope*) {
  TUFT_TRY(write(node.text));
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::exec(const ast::Output& node, Scope* scope) {
  TUFT_ASSIGN(const Value value, evaluate(*node.value, scope));
  if (const auto* text = value.text()) {
    TUFT_TRY(write(*text));
  } else {
    TUFT_ASSIGN(const std::string made, to_text(budget_, value));
    TUFT_TRY(write(made));
  }
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::exec(const ast::If& node, Scope* scope) {
  for (const auto& [test, body] : node.branches) {
    TUFT_ASSIGN(const Value holds, evaluate(*test, scope));
    if (holds.truthy()) return execute(body, scope);
  }
  return execute(node.otherwise, scope);
}

Result<Renderer::Flow> Renderer::exec(const ast::For& node, Scope* scope) {
  TUFT_ASSIGN(const Value iterable, evaluate(*node.iterable, scope));
  TUFT_ASSIGN(Values items, items_of(budget_, iterable));
  const auto loop = std::make_shared<Loop>();
  loop->depth = iterable.depth() + 1;
  if (node.filter == nullptr) {
    loop->items = std::move(items);
  } else {
    loop->unfiltered = std::move(items);
    loop->accepts = [this, &node, scope](const Value& item) -> Result<bool> {
      const Scopes::Inner inner(scopes_, scope);
      TUFT_TRY(unpack(node, item, inner.get()));
      TUFT_ASSIGN(const Value accepted, evaluate(*node.filter, inner.get()));
      return accepted.truthy();
    };
  }
  auto flow = iterate(node, loop, scope);
  // The template may have stored the loop in a namespace, which lives longer than this function.
  loop->accepts = nullptr;
  return flow;
}

Result<Renderer::Flow> Renderer::iterate(const ast::For& node, const std::shared_ptr<Loop>& loop, Scope* scope) {
  for (size_t i = 0;; ++i) {
    TUFT_TRY(budget_.step());
    TUFT_ASSIGN(const bool more, loop->reaches(i));
    if (!more && i == 0) return execute(node.otherwise, scope);
    if (!more) return Flow::kNext;
    loop->index = i;
    const Scopes::Inner inner(scopes_, scope);
    inner.get()->set("loop", Value(loop));
    TUFT_TRY(unpack(node, loop->items[i], inner.get()));
    TUFT_ASSIGN(const Flow flow, execute(node.body, inner.get()));
    if (flow == Flow::kBreak) return Flow::kNext;
  }
}

Status Renderer::unpack(const ast::For& node, const Value& item, Scope* scope) {
  if (!node.unpacks) {
    scope->set(node.names[0], item);
    return {};
  }
  TUFT_ASSIGN(Values values, items_of(budget_, item));
  if (values.size() != node.names.size()) {
    return template_error(std::to_string(values.size()) + " values for " + std::to_string(node.names.size()) +
                          " names");
  }
  for (size_t i = 0; i < values.size(); ++i) scope->set(node.names[i], std::move(values[i]));
  return {};
}

Status Renderer::assign(const ast::Target& target, Value value, Scope* scope) {
  if (target.attribute.empty()) {
    scope->set(target.name, std::move(value));
    return {};
  }
  const Value* object = scope->find(target.name);
  if (object == nullptr || !object->is<Namespace*>()) {
    return template_error("cannot assign attribute on non-namespace object");
  }
  if (target.attribute.starts_with('_')) {
    return template_error("a namespace cannot have names that start with an underscore");
  }
  Namespace& space = **object->as<Namespace*>();
  TUFT_TRY(budget_.step(space.attributes.size()));
  space.set(target.attribute, std::move(value));
  return {};
}

Result<Renderer::Flow> Renderer::exec(const ast::Set& node, Scope* scope) {
  TUFT_ASSIGN(Value value, evaluate(*node.value, scope));
  TUFT_TRY(assign(node.target, std::move(value), scope));
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::capture(const ast::Block& body, Scope* scope, Value& text) {
  std::string inner;
  std::string* const outer = std::exchange(out_, &inner);
  auto flow = execute(body, scope);
  out_ = outer;
  if (!flow.ok()) return flow;
  TUFT_ASSIGN(text, make_string(budget_, std::move(inner)));
  return flow;
}

Result<Renderer::Flow> Renderer::exec(const ast::SetBlock& node, Scope* scope) {
  const Scopes::Inner inner(scopes_, scope);
  Value text;
  TUFT_ASSIGN(const Flow flow, capture(node.body, inner.get(), text));
  if (flow != Flow::kNext) return flow;
  TUFT_TRY(assign(node.target, std::move(text), scope));
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::exec(const ast::Macro& node, Scope* scope) {
  TUFT_TRY(budget_.allocate(sizeof(Closure) + sizeof(Callable) + sizeof(Scope)));
  scope->set(node.name, make_macro(node, scope));
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::exec(const ast::CallBlock& node, Scope* scope) {
  const auto& call_node = std::get<ast::Call>(node.call->node);
  TUFT_TRY(budget_.allocate(sizeof(Closure) + sizeof(Callable) + sizeof(Scope)));
  TUFT_ASSIGN(const Value callee, evaluate(*call_node.callee, scope));
  TUFT_ASSIGN(CallArguments arguments, evaluate_arguments(call_node.arguments, scope));
  arguments.named.emplace_back("caller", make_macro(node.caller, scope));
  TUFT_ASSIGN(const Value value, call(callee, std::move(arguments)));
  TUFT_ASSIGN(const auto text, text_argument(value, "the text of a call block"));
  TUFT_TRY(write(text));
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::exec(const ast::FilterBlock& node, Scope* scope) {
  const Scopes::Inner inner(scopes_, scope);
  Value text;
  TUFT_ASSIGN(const Flow flow, capture(node.body, inner.get(), text));
  if (flow != Flow::kNext) return flow;
  Value outer = std::exchange(filtered_block_, std::move(text));
  const auto value = evaluate(*node.filter, inner.get());
  filtered_block_ = std::move(outer);
  if (!value.ok()) return value.error();
  TUFT_ASSIGN(const auto made, text_argument(*value, "the text of a filter block"));
  TUFT_TRY(write(made));
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::exec(const ast::Generation& node, Scope* scope) {
  const Scopes::Inner inner(scopes_, scope);
  return execute(node.body, inner.get());
}

Result<Renderer::Flow> Renderer::exec(const ast::Break&, Scope*) {
  return Flow::kBreak;
}

Result<Renderer::Flow> Renderer::exec(const ast::Continue&, Scope*) {
  return Flow::kContinue;
}

}  // namespace tuft::chat
