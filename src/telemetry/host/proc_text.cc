#include "telemetry/host/proc_text.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>

namespace tuft::telemetry::internal {
namespace {

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (size_t at = text.find_first_not_of(separators); at < text.size();) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(separators, end);
  }
  return parts;
}

}  // namespace

std::string read_proc(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<uint64_t> parse_u64(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\n");
  if (start == std::string_view::npos) return std::nullopt;
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data() + start, text.data() + text.size(), value);
  if (problem != std::errc{}) return std::nullopt;
  return value;
}

std::optional<uint64_t> proc_field(std::string_view text, std::string_view key) {
  for (const std::string_view line : split_lines(text)) {
    if (line.starts_with(key)) return parse_u64(line.substr(key.size()));
  }
  return std::nullopt;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  return split(text, "\n");
}

std::vector<std::string_view> split_columns(std::string_view line) {
  return split(line, " \t");
}

}  // namespace tuft::telemetry::internal
