#include "chat/text_operations.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "chat/unicode.h"

namespace tuft::chat {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

size_t limit_of(int64_t count) {
  return count < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(count);
}

// An empty `old` stands before every character and at the end.
std::string insert_everywhere(std::string_view text, std::string_view with, size_t limit) {
  std::string out;
  size_t at = 0;
  for (size_t done = 0; done < limit; ++done) {
    out += with;
    if (at >= text.size()) return out;
    const size_t bytes = code_point_at(text, at).bytes;
    out += text.substr(at, bytes);
    at += bytes;
  }
  return out += text.substr(at);
}

using Pieces = std::vector<std::string_view>;

size_t skip_if(std::string_view text, size_t at, bool space) {
  while (at < text.size()) {
    const auto [c, bytes] = code_point_at(text, at);
    if (is_space(c) != space) break;
    at += bytes;
  }
  return at;
}

Pieces split_at_space(std::string_view text, size_t limit) {
  Pieces out;
  size_t at = skip_if(text, 0, true);
  while (at < text.size()) {
    if (out.size() == limit) {
      out.push_back(text.substr(at));
      return out;
    }
    const size_t end = skip_if(text, at, false);
    out.push_back(text.substr(at, end - at));
    at = skip_if(text, end, true);
  }
  return out;
}

Pieces split_at(std::string_view text, std::string_view separator, size_t limit) {
  Pieces out;
  size_t at = 0;
  while (out.size() < limit) {
    const size_t found = find_text(text, separator, at);
    if (found == kNowhere) break;
    out.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  out.push_back(text.substr(at));
  return out;
}

// The last `limit` cuts of all: from the right, overlapping separators may be cut elsewhere, so it looks from there.
Result<Pieces> split_from_right(Budget& budget, std::string_view text, std::optional<std::string_view> separator,
                                size_t limit) {
  Pieces out;
  std::string_view left = separator ? text : strip(text, Side::kRight);
  while (separator ? out.size() < limit : !left.empty()) {
    TUFT_TRY(budget.scan(left.size()));
    if (!separator && out.size() == limit) break;
    size_t cut = kNowhere;
    size_t width = 0;
    if (separator) {
      cut = find_text_last(left, *separator, left.size());
      width = separator->size();
    } else {
      cut = left.size();
      while (cut > 0) {
        size_t before = cut - 1;
        while (before > 0 && (left[before] & 0xC0) == 0x80) --before;
        if (is_space(code_point_at(left, before).value)) break;
        cut = before;
      }
    }
    if (cut == kNowhere) break;
    out.push_back(left.substr(cut + width));
    left = separator ? left.substr(0, cut) : strip(left.substr(0, cut), Side::kRight);
  }
  if (separator || !left.empty()) out.push_back(left);
  std::ranges::reverse(out);
  return out;
}

}  // namespace

Result<std::string> replace_text(Budget& budget, std::string_view text, std::string_view old, std::string_view with,
                                 int64_t count) {
  const size_t limit = limit_of(count);
  TUFT_TRY(budget.allocate(text.size()));
  if (old.empty()) {
    TUFT_TRY(budget.allocate(with.size() * std::min(count_code_points(text) + 1, limit)));
    return insert_everywhere(text, with, limit);
  }
  std::string out;
  size_t at = 0;
  for (size_t done = 0; done < limit; ++done) {
    const size_t found = find_text(text, old, at);
    if (found == kNowhere) break;
    TUFT_TRY(budget.allocate(with.size()));
    out += text.substr(at, found - at);
    out += with;
    at = found + old.size();
  }
  return out += text.substr(at);
}

Result<Value> split_text(Budget& budget, std::string_view text, std::optional<std::string_view> separator,
                         int64_t limit, bool from_right) {
  if (separator && separator->empty()) return template_error("empty separator");
  TUFT_TRY(budget.scan(text.size()));
  Pieces pieces;
  if (from_right && limit >= 0) {
    TUFT_ASSIGN(pieces, split_from_right(budget, text, separator, limit_of(limit)));
  } else {
    pieces = separator ? split_at(text, *separator, limit_of(limit)) : split_at_space(text, limit_of(limit));
  }
  TUFT_TRY(budget.allocate(text.size() + pieces.size() * sizeof(std::string)));
  Values out;
  out.reserve(pieces.size());
  for (const std::string_view piece : pieces) out.push_back(string_value(std::string(piece)));
  return make_list(budget, std::move(out));
}

Result<std::string> join_text(Budget& budget, std::string_view separator, const std::vector<std::string>& parts) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    TUFT_TRY(budget.allocate(parts[i].size() + separator.size()));
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

Result<std::string> pad_text(Budget& budget, std::string_view text, int64_t width, std::string_view fill,
                             bool fill_left, bool fill_right) {
  if (count_code_points(fill) != 1) return template_error("the fill character must be exactly one character long");
  TUFT_TRY(budget.allocate(text.size()));
  const auto length = static_cast<int64_t>(count_code_points(text));
  const int64_t missing = std::max<int64_t>(width - length, 0);
  if (missing > (int64_t{1} << 40)) return budget.allocate(std::numeric_limits<size_t>::max() / 4).error();
  TUFT_TRY(budget.allocate(static_cast<size_t>(missing) * fill.size()));
  // As Python centers: an odd rest goes to the left where the width is odd.
  const int64_t left = !fill_left ? 0 : !fill_right ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace tuft::chat
