// Parses the source of a template.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "chat/ast.h"

namespace tuft::chat {

// Returns kInvalidArgument or kUnimplemented with a message that says what is wrong and in which line.
Result<std::shared_ptr<const ast::Template>> parse_template(std::string_view source);

}  // namespace tuft::chat
