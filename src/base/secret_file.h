// Files that hold secrets: keys of users, tokens.
#pragma once

#include <filesystem>
#include <string_view>

namespace tuft {

// Returns true if the file's group or others may use it in any way; false for a file that is not there. Follows links.
bool is_open_to_others(const std::filesystem::path& file);

// What a warning about such a file says after its name.
inline constexpr std::string_view kOpenToOthers = "can be read by others; restrict it with chmod 600";

}  // namespace tuft
