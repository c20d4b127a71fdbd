#include "api/routing/query.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace tuft::api {
namespace {

// Further keys are ignored. No endpoint has so many.
constexpr size_t kFieldsMax = 64;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool percent_decode(std::string_view text, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

QueryFields::QueryFields(std::string_view query) {
  query = query.substr(0, query.find('#'));
  while (!query.empty() && fields_.size() < kFieldsMax) {
    const size_t end = std::min(query.find('&'), query.size());
    std::string field(query.substr(0, end));
    query.remove_prefix(std::min(end + 1, query.size()));
    std::replace(field.begin(), field.end(), '+', ' ');
    const size_t equals = std::min(field.find('='), field.size());
    const std::string_view raw = field;
    std::string key;
    std::string value;
    if (!percent_decode(raw.substr(0, equals), key)) {
      is_unread_ = true;
      continue;
    }
    const std::string_view raw_value = equals < raw.size() ? raw.substr(equals + 1) : std::string_view();
    // Text that is not UTF-8 is replaced by a control character, which every rule refuses.
    if (!percent_decode(raw_value, value) || !is_utf8(value)) value = std::string(1, '\0');
    if (fields_.contains(key)) repeated_.push_back(key);
    fields_[std::move(key)] = std::move(value);
  }
  if (!query.empty()) is_unread_ = true;
}

const std::string* QueryFields::find(std::string_view key) const {
  const auto found = fields_.find(key);
  return found == fields_.end() ? nullptr : &found->second;
}

int64_t QueryFields::integer(std::string_view key, int64_t fallback, int64_t min, int64_t max) {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= min && value <= max) return value;
  problem(key, integer_rule(min, max));
  return fallback;
}

std::optional<std::string> QueryFields::text(std::string_view key, size_t bytes_max) {
  const std::string* text = find(key);
  if (text == nullptr || text->empty()) return std::nullopt;
  const bool printable = std::none_of(text->begin(), text->end(),
                                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (printable && text->size() <= bytes_max) return *text;
  problem(key, "must be text of at most " + std::to_string(bytes_max) + " bytes without control characters");
  return std::nullopt;
}

std::string_view QueryFields::word(std::string_view key, std::string_view fallback,
                                   std::initializer_list<std::string_view> words) {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  const auto* const known = std::find(words.begin(), words.end(), *text);
  if (known != words.end()) return *known;
  std::string rule = "must be one of";
  for (const std::string_view choice : words) rule.append(choice == *words.begin() ? " " : ", ").append(choice);
  problem(key, rule);
  return fallback;
}

double QueryFields::number(std::string_view key, double fallback, double max) {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  double value = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(value) && value >= 0 && value <= max) return value;
  problem(key, "must be a number of at least 0");
  return fallback;
}

void QueryFields::only(const std::vector<std::string_view>& keys) {
  for (const auto& [key, value] : fields_) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    problems_.add("the parameter " + shown_name(key), "is not one that this endpoint knows");
  }
  for (const std::string& key : repeated_) problems_.add("the parameter " + shown_name(key), "comes twice");
  if (is_unread_) problems_.add("the query", "has parameters that cannot be read, or too many");
}

control::PageRequest QueryFields::page(int64_t limit_default, int64_t limit_max) {
  control::PageRequest page;
  page.limit = integer("limit", limit_default, 1, limit_max);
  page.offset = integer("offset", 0, 0, std::numeric_limits<int64_t>::max());
  return page;
}

}  // namespace tuft::api
