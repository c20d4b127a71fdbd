// Reads the text files of /proc and /sys. Internal to telemetry.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tuft::telemetry::internal {

// Returns the whole file, even if its reported size is 0; "" if it does not exist.
std::string read_proc(const std::filesystem::path& path);

// Returns the number at the start of `text`, after blanks.
std::optional<uint64_t> parse_u64(std::string_view text);

// Returns the number after `key` at the start of a line.
std::optional<uint64_t> proc_field(std::string_view text, std::string_view key);

std::vector<std::string_view> split_lines(std::string_view text);
std::vector<std::string_view> split_columns(std::string_view line);

}  // namespace tuft::telemetry::internal
