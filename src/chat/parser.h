// Reads a whole template.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "chat/ast.h"

namespace tuft::chat {

// kInvalidArgument, kUnimplemented: what and in which line.
Result<std::shared_ptr<const ast::Template>> parse_template(std::string_view source);

}  // namespace tuft::chat
