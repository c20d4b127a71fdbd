#include "base/time_text.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>

namespace tuft {
namespace {

constexpr Nanos kMinute = 60 * kSecond;

// Removes exactly `digits` digits from the front of the text.
std::optional<int> take_number(std::string_view& text, size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<Nanos> take_day(std::string_view& text) {
  const auto year = take_number(text, 4);
  if (!year || !take(text, "-")) return std::nullopt;
  const auto month = take_number(text, 2);
  if (!month || !take(text, "-")) return std::nullopt;
  const auto day = take_number(text, 2);
  if (!day || *year < 1970 || *year > 2255) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count() * 24 * 60 * kMinute;
}

// Reads "HH:MM" of an offset or of a time of day.
std::optional<Nanos> take_hours_and_minutes(std::string_view& text) {
  const auto hours = take_number(text, 2);
  if (!hours || *hours > 23 || !take(text, ":")) return std::nullopt;
  const auto minutes = take_number(text, 2);
  if (!minutes || *minutes > 59) return std::nullopt;
  return (*hours * 60 + *minutes) * kMinute;
}

std::optional<Nanos> take_seconds(std::string_view& text) {
  const auto seconds = take_number(text, 2);
  if (!seconds || *seconds > 59) return std::nullopt;
  Nanos time = *seconds * kSecond;
  if (!take(text, ".")) return time;
  size_t digits = 0;
  for (Nanos unit = kSecond / 10; !text.empty() && text.front() >= '0' && text.front() <= '9'; unit /= 10, ++digits) {
    time += (text.front() - '0') * unit;
    text.remove_prefix(1);
  }
  return digits == 0 ? std::nullopt : std::optional(time);
}

}  // namespace

std::string time_text(Nanos wall) {
  const std::chrono::sys_days day{std::chrono::days(wall / (24 * 60 * kMinute))};
  const std::chrono::year_month_day date(day);
  const Nanos rest = wall % (24 * 60 * kMinute);
  std::array<char, 40> text{};
  const int size =
      std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", static_cast<int>(date.year()),
                    static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                    static_cast<int>(rest / (60 * kMinute)), static_cast<int>(rest / kMinute % 60),
                    static_cast<int>(rest / kSecond % 60), static_cast<int>(rest % kSecond / kMicrosecond));
  return {text.data(), static_cast<size_t>(size)};
}

std::optional<Nanos> parse_time_text(std::string_view text) {
  const auto day = take_day(text);
  if (!day || !take(text, "Tt ")) return std::nullopt;
  const auto minutes = take_hours_and_minutes(text);
  if (!minutes || !take(text, ":")) return std::nullopt;
  const auto seconds = take_seconds(text);
  if (!seconds) return std::nullopt;
  const Nanos local = *day + *minutes + *seconds;
  if (take(text, "Zz")) return text.empty() ? std::optional(local) : std::nullopt;
  const bool behind = take(text, "-");
  if (!behind && !take(text, "+ ")) return std::nullopt;
  const auto offset = take_hours_and_minutes(text);
  if (!offset || !text.empty()) return std::nullopt;
  return behind ? local + *offset : local - *offset;
}

std::optional<Nanos> parse_day(std::string_view text) {
  const auto day = take_day(text);
  return text.empty() ? day : std::nullopt;
}

}  // namespace tuft
