// Numbers with units, as people read and write them. Times and durations are microseconds, as in the observe API.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::terminal {

// Missing and non-finite values are "-".
std::string duration_text(std::optional<double> micros);  // "850 us", "12.3 ms", "4.56 s", "3m20s", "2h15m", "3d4h"
std::string count_text(std::optional<double> value);      // "17", "0.25", "12.3k", "4.5M"
std::string bytes_text(std::optional<double> bytes);      // "512 B", "1.1 GB" (powers of 1000)
std::string share_text(std::optional<double> share);      // "42 %"
// In the local time zone.
std::string clock_text(std::optional<double> micros);  // "04:12:07.123"
std::string day_text(std::optional<double> micros);    // "2026-11-25 04:12:07.123"

// Reads "250us", "50ms", "2s", "1.5m" or "1h"; a number without a unit is milliseconds. Returns microseconds.
Result<double> parse_duration(std::string_view text);

// Reads a point in time as the observe API takes it: "15m" and "-15m" (before now; s, m, h, d), a date or time of RFC
// 3339, or microseconds since the epoch. Returns the value of the query parameter.
Result<std::string> parse_point(std::string_view text);

}  // namespace tuft::terminal
