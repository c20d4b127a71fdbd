#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::chat {

// What stands between the quotes of a string in a tag, with Python's escapes replaced. Named characters (\N) and
// surrogates are not supported.
Result<std::string> unescape(std::string_view inside, int line);

}  // namespace tuft::chat
