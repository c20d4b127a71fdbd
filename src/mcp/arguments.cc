#include "mcp/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/time_text.h"

namespace tuft::mcp {
namespace {

constexpr size_t kTextBytesMax = 512;
constexpr size_t kNameShownMax = 64;
constexpr Nanos kMinuteNanos = 60 * kSecond, kHourNanos = 60 * kMinuteNanos, kDayNanos = 24 * kHourNanos;
constexpr double kAgeMax = 3650.0 * 24 * 3600;  // seconds

bool is_clean(const std::string& text) {
  return text.size() <= kTextBytesMax &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
}

// Reads "-15m".
std::optional<Nanos> age(std::string_view text) {
  if (text.size() < 3 || text[0] != '-') return std::nullopt;
  const Nanos unit = text.back() == 's'   ? kSecond
                     : text.back() == 'm' ? kMinuteNanos
                     : text.back() == 'h' ? kHourNanos
                     : text.back() == 'd' ? kDayNanos
                                          : 0;
  double value = 0;
  const std::string_view digits = text.substr(1, text.size() - 2);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || unit == 0 || !(value >= 0) || value * to_seconds(unit) > kAgeMax) return std::nullopt;
  return static_cast<Nanos>(value * static_cast<double>(unit));
}

}  // namespace

const Input* Arguments::find(std::string_view name) {
  known_.emplace_back(name);
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Arguments::wrong(std::string_view name, std::string_view rule) {
  if (problem_.ok()) problem_ = invalid_argument("the argument '" + std::string(name) + "' " + std::string(rule));
}

std::string Arguments::text(std::string_view name) {
  const Input* const value = find(name);
  if (value == nullptr) return {};
  if (value->is_string() && is_clean(value->get_ref<const std::string&>())) return value->get<std::string>();
  wrong(name, "must be a text of at most 512 bytes without control characters");
  return {};
}

int64_t Arguments::integer(std::string_view name, int64_t absent, int64_t min, int64_t max) {
  const Input* const value = find(name);
  if (value == nullptr) return absent;
  if (value->is_number()) {
    const double number = value->get<double>();
    const bool is_inside = number >= static_cast<double>(min) && number <= static_cast<double>(max);
    if (is_inside && number == std::floor(number)) return static_cast<int64_t>(number);
  }
  wrong(name, "must be a whole number between " + std::to_string(min) + " and " + std::to_string(max));
  return absent;
}

bool Arguments::flag(std::string_view name, bool absent) {
  const Input* const value = find(name);
  if (value == nullptr) return absent;
  if (value->is_boolean()) return value->get<bool>();
  wrong(name, "must be true or false");
  return absent;
}

std::optional<double> Arguments::number(std::string_view name, double min, double max) {
  const Input* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && value->get<double>() >= min && value->get<double>() <= max) return value->get<double>();
  wrong(name, "must be a number between " + to_text(min) + " and " + to_text(max));
  return std::nullopt;
}

std::string Arguments::word(std::string_view name, std::string_view absent,
                            std::initializer_list<std::string_view> words) {
  const Input* const value = find(name);
  if (value == nullptr) return std::string(absent);
  if (value->is_string() && std::find(words.begin(), words.end(), value->get<std::string>()) != words.end()) {
    return value->get<std::string>();
  }
  std::string list;
  for (const std::string_view word : words) list += (list.empty() ? "" : ", ") + std::string(word);
  wrong(name, "must be one of " + list);
  return std::string(absent);
}

std::vector<std::string> Arguments::texts(std::string_view name, size_t count_max) {
  const Input* const value = find(name);
  if (value == nullptr) return {};
  std::vector<std::string> found;
  bool is_right = value->is_array() && value->size() <= count_max;
  for (size_t i = 0; is_right && i < value->size(); ++i) {
    is_right = (*value)[i].is_string() && is_clean((*value)[i].get_ref<const std::string&>());
    if (is_right) found.push_back((*value)[i].get<std::string>());
  }
  if (is_right) return found;
  wrong(name, "must be a list of at most " + std::to_string(count_max) + " texts");
  return {};
}

std::map<std::string, std::string> Arguments::text_by_name(std::string_view name, size_t count_max) {
  const Input* const value = find(name);
  if (value == nullptr) return {};
  std::map<std::string, std::string> found;
  bool is_right = value->is_object() && value->size() <= count_max;
  if (is_right) {
    for (const auto& [key, text] : value->items()) {
      is_right = is_right && text.is_string() && is_clean(key) && is_clean(text.get_ref<const std::string&>());
      if (is_right) found.emplace(key, text.get<std::string>());
    }
  }
  if (is_right) return found;
  wrong(name, "must be an object with at most " + std::to_string(count_max) + " texts");
  return {};
}

std::optional<Nanos> Arguments::time(std::string_view name) {
  const std::string written = text(name);
  if (written.empty()) return std::nullopt;
  if (const std::optional<Nanos> before = age(written)) return std::max<Nanos>(1, clock_.wall() - *before);
  if (const std::optional<Nanos> point = parse_time_text(written)) return point;
  wrong(name, "must be a time such as -15m (s, m, h, d before now) or 2026-11-25T04:00:00Z");
  return std::nullopt;
}

telemetry_store::TimeRange Arguments::times() {
  telemetry_store::TimeRange range;
  range.from = time("from").value_or(std::max<Nanos>(1, clock_.wall() - kHourNanos));
  range.until = time("until").value_or(0);
  if (range.until != 0 && range.until <= range.from) wrong("until", "must be later than 'from'");
  return range;
}

void Arguments::require(std::string_view name, bool is_there) {
  if (!is_there) wrong(name, "is required");
}

Status Arguments::finish() {
  if (!problem_.ok() || !object_.is_object()) return problem_;
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    std::string list;
    for (const std::string& known : known_) list += (list.empty() ? "" : ", ") + known;
    return invalid_argument("there is no argument '" + name.substr(0, kNameShownMax) + "'; " +
                            (list.empty() ? "this tool has none" : "this tool has: " + list));
  }
  return {};
}

}  // namespace tuft::mcp
