#include "chat/chat_template.h"

#include <utility>

namespace tuft::chat {

namespace ast {
struct Template {};
}  // namespace ast

ChatTemplate::ChatTemplate(std::shared_ptr<const ast::Template> root) : root_(std::move(root)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view) {
  return Error{ErrorCode::kUnimplemented, "chat templates are not read yet", {}};
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json&, const RenderOptions&) const {
  return Error{ErrorCode::kUnimplemented, "chat templates are not rendered yet", {}};
}

bool ChatTemplate::uses(std::string_view) const {
  return root_ == nullptr;
}

}  // namespace tuft::chat
