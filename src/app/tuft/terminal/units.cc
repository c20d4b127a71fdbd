#include "app/tuft/terminal/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/clock.h"
#include "base/time_text.h"

namespace tuft::terminal {
namespace {

constexpr double kMilliMicros = 1e3, kSecondMicros = 1e6, kMinuteMicros = 60e6, kHourMicros = 3600e6;
constexpr double kDayMicros = 24 * kHourMicros;

// Three digits, as far as the number needs them.
std::string digits(double value) {
  const double size = std::abs(value);
  std::array<char, 64> text{};
  const int places = size >= 99.95 || value == std::floor(value) ? 0 : size >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f", places, value);
  return text.data();
}

std::string pair_text(double value, double unit, char name, double part, char part_name) {
  const double whole = std::floor(value / unit);
  const double rest = std::floor((value - whole * unit) / part);
  return digits(whole) + name + digits(rest) + part_name;
}

bool is_missing(const std::optional<double>& value) {
  return !value || !std::isfinite(*value);
}

std::optional<std::tm> local_time(double micros) {
  if (micros < 0 || micros > 4e15) return std::nullopt;
  const auto seconds = static_cast<std::time_t>(micros / kSecondMicros);
  std::tm parts = {};
  if (::localtime_r(&seconds, &parts) == nullptr) return std::nullopt;
  return parts;
}

std::string time_with(const char* form, std::optional<double> micros) {
  if (is_missing(micros)) return "-";
  const std::optional<std::tm> parts = local_time(*micros);
  if (!parts) return "-";
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), form, &*parts);
  const auto millis = static_cast<int>(std::fmod(*micros, kSecondMicros) / kMilliMicros);
  std::array<char, 8> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03d", millis);
  return std::string(text.data()) + fraction.data();
}

// Splits "1.5m" into the number and the unit.
std::optional<std::pair<double, std::string_view>> number_and_unit(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  return std::pair(value, text.substr(static_cast<size_t>(end - text.data())));
}

std::string micros_text(Nanos wall) {
  return std::to_string(wall / kMicrosecond);
}

}  // namespace

std::string duration_text(std::optional<double> micros) {
  if (is_missing(micros)) return "-";
  const double value = *micros;
  if (value < 999.5) return digits(std::round(value)) + " us";
  if (value < 999.5 * kMilliMicros) return digits(value / kMilliMicros) + " ms";
  if (value < 99.95 * kSecondMicros) return digits(value / kSecondMicros) + " s";
  if (value < kHourMicros) return pair_text(value, kMinuteMicros, 'm', kSecondMicros, 's');
  if (value < kDayMicros) return pair_text(value, kHourMicros, 'h', kMinuteMicros, 'm');
  return pair_text(value, kDayMicros, 'd', kHourMicros, 'h');
}

std::string count_text(std::optional<double> value) {
  if (is_missing(value)) return "-";
  const double size = std::abs(*value);
  if (size < 9999.5) return digits(*value);
  if (size < 999.5e3) return digits(*value / 1e3) + "k";
  if (size < 999.5e6) return digits(*value / 1e6) + "M";
  return digits(*value / 1e9) + "G";
}

std::string bytes_text(std::optional<double> bytes) {
  if (is_missing(bytes)) return "-";
  static constexpr std::array<const char*, 5> kUnits = {" B", " kB", " MB", " GB", " TB"};
  double value = *bytes;
  size_t unit = 0;
  for (; std::abs(value) >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return digits(value) + kUnits[unit];
}

std::string share_text(std::optional<double> share) {
  return is_missing(share) ? "-" : digits(std::round(*share * 100)) + " %";
}

std::string clock_text(std::optional<double> micros) {
  return time_with("%H:%M:%S", micros);
}

std::string day_text(std::optional<double> micros) {
  return time_with("%Y-%m-%d %H:%M:%S", micros);
}

Result<double> parse_duration(std::string_view text) {
  if (const auto found = number_and_unit(text)) {
    const auto [value, unit] = *found;
    if (unit == "us") return value;
    if (unit == "ms" || unit.empty()) return value * kMilliMicros;
    if (unit == "s") return value * kSecondMicros;
    if (unit == "m") return value * kMinuteMicros;
    if (unit == "h") return value * kHourMicros;
  }
  return invalid_argument("'" + std::string(text) + "' is not a duration; write, for instance, 250us, 50ms, 2s or 1m");
}

Result<std::string> parse_point(std::string_view text) {
  const bool is_before = text.starts_with('-');
  if (const auto found = number_and_unit(is_before ? text.substr(1) : text)) {
    const auto [value, unit] = *found;
    if (unit == "s" || unit == "m" || unit == "h" || unit == "d") {
      return (is_before ? "" : "-") + std::string(text);
    }
    if (unit.empty() && !is_before && value >= kHourMicros) return std::string(text);
  }
  if (const std::optional<Nanos> time = parse_time_text(text)) return micros_text(*time);
  if (const std::optional<Nanos> day = parse_day(text)) return micros_text(*day);
  return invalid_argument("'" + std::string(text) +
                          "' is not a time; write, for instance, 15m (before now), 2026-11-25 or 2026-11-25T04:00:00Z");
}

}  // namespace tuft::terminal
