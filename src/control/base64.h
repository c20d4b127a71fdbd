// Bytes as text, RFC 4648, with padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tuft::control {

std::string to_base64(std::string_view bytes);
// Nothing where it is no base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tuft::control
