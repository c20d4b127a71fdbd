// Base64 of RFC 4648, with padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tuft {

std::string to_base64(std::string_view bytes);
// Returns nothing if `text` is not valid base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tuft
