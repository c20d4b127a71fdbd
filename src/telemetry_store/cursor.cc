#include "telemetry_store/cursor.h"

#include <array>
#include <charconv>
#include <limits>

namespace tuft::telemetry_store::internal {

namespace {

constexpr Nanos kTimeMax = std::numeric_limits<Nanos>::max() / 2;

}  // namespace

std::string encode_cursor(const Cursor& cursor) {
  std::string text;
  for (const uint64_t part : {static_cast<uint64_t>(cursor.time), cursor.first, cursor.second}) {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), part, 16).ptr;
    if (!text.empty()) text += '-';
    text.append(digits.data(), end);
  }
  return text;
}

Result<Cursor> decode_cursor(std::string_view text) {
  const Error wrong = invalid_argument("the cursor is not one that an earlier answer gave: leave it out to begin anew");
  std::array<uint64_t, 3> parts{};
  for (uint64_t& part : parts) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), part, 16);
    const bool is_last = &part == &parts.back();
    if (parsed.ec != std::errc()) return wrong;
    text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
    if (is_last ? !text.empty() : !text.starts_with('-')) return wrong;
    if (!is_last) text.remove_prefix(1);
  }
  // Times are compared with those around them, which must not overflow.
  if (parts[0] > static_cast<uint64_t>(kTimeMax)) return wrong;
  return Cursor{static_cast<Nanos>(parts[0]), parts[1], parts[2]};
}

}  // namespace tuft::telemetry_store::internal
