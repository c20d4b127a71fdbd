#include "chat/chat_template.h"

#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "chat/ast.h"
#include "chat/budget.h"
#include "chat/json_text.h"
#include "chat/parser.h"
#include "chat/renderer.h"

namespace tuft::chat {
namespace {

using Json = nlohmann::ordered_json;

// Templates read the reasoning of a message under different names. As in transformers, a message gets all of them.
void spread_reasoning(Json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    const Json reasoning = *found;
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

Result<Json> checked_messages(const Json& messages) {
  if (!messages.is_array()) return invalid_argument("messages must be a list of objects with \"role\" and \"content\"");
  Json out = messages;
  for (Json& message : out) {
    if (!message.is_object()) return invalid_argument("every message must be an object with \"role\" and \"content\"");
    spread_reasoning(message);
  }
  return out;
}

// Defines only those variables that the template reads: their number has no limit, and names are searched in a list.
Status define_variables(Renderer& renderer, Budget& budget, const Json& variables, const ast::Template& root) {
  if (variables.is_null()) return {};
  if (!variables.is_object()) return invalid_argument("the variables of a chat template must be an object");
  for (const auto& [name, json] : variables.get_ref<const Json::object_t&>()) {
    TUFT_TRY(budget.step());
    if (!root.names.contains(name)) continue;
    TUFT_ASSIGN(Value value, value_of_json(budget, json));
    renderer.define(name, std::move(value));
  }
  return {};
}

Status define_names(Renderer& renderer, Budget& budget, const Json& messages, const RenderOptions& options) {
  const Json none;
  for (const auto& [name, token] : options.special_tokens) {
    TUFT_ASSIGN(Value value, value_of_json(budget, token));
    renderer.define(name, std::move(value));
  }
  TUFT_ASSIGN(const Json list, checked_messages(messages));
  const std::pair<std::string_view, const Json*> given[] = {
      {"messages", &list}, {"tools", options.tools}, {"documents", options.documents}};
  for (const auto& [name, json] : given) {
    TUFT_ASSIGN(Value value, value_of_json(budget, json == nullptr ? none : *json));
    renderer.define(name, std::move(value));
  }
  renderer.define("add_generation_prompt", Value(options.add_generation_prompt));
  return {};
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const ast::Template> root) : root_(std::move(root)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  TUFT_ASSIGN(auto root, parse_template(source));
  return ChatTemplate(std::move(root));
}

Result<std::string> ChatTemplate::render(const Json& messages, const RenderOptions& options) const {
  Budget budget(options.limits);
  Renderer renderer(budget, options.now);
  TUFT_TRY(define_names(renderer, budget, messages, options));
  if (options.variables != nullptr) TUFT_TRY(define_variables(renderer, budget, *options.variables, *root_));
  return renderer.run(*root_);
}

bool ChatTemplate::uses(std::string_view variable) const {
  return root_->names.contains(variable);
}

}  // namespace tuft::chat
