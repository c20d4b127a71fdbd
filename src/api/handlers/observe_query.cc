#include "api/handlers/observe_query.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace tuft::api {
namespace {

constexpr size_t kTextBytesMax = 256;
constexpr size_t kCursorBytesMax = 1024;
constexpr double kMicrosMax = 9e15;  // the year 2255; exact as a double
constexpr Nanos kDefaultRange = 3600 * kSecond;
constexpr Nanos kStepsMax = 2'000;
constexpr int64_t kListedDefault = 50, kListedMax = 200, kOffsetMax = 100'000;
constexpr std::string_view kTimeRule =
    "must be microseconds since 1970, or a time before now such as -15m (s, m, h, d)";

Nanos from_micros(double micros) {
  return static_cast<Nanos>(std::llround(micros * 1e3));
}

// Reads "-15m".
std::optional<Nanos> parse_before_now(std::string_view text, Nanos now) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + 1, end, count);
  if (parsed.ec != std::errc() || parsed.ptr + 1 != end || count < 0 || count > 1'000'000) return std::nullopt;
  switch (*parsed.ptr) {
    case 's':
      return now - count * kSecond;
    case 'm':
      return now - count * 60 * kSecond;
    case 'h':
      return now - count * 3'600 * kSecond;
    case 'd':
      return count > 36'500 ? std::nullopt : std::optional(now - count * 86'400 * kSecond);
    default:
      return std::nullopt;
  }
}

Nanos read_time(QueryFields& query, std::string_view key, Nanos now, Nanos fallback) {
  const auto text = query.text(key, kTextBytesMax);
  if (!text) return fallback;
  if (text->starts_with('-')) {
    const auto time = parse_before_now(*text, now);
    if (!time) query.problem(key, kTimeRule);
    return std::max<Nanos>(0, time.value_or(fallback));
  }
  double micros = 0;
  const char* const end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, micros);
  if (parsed.ec == std::errc() && parsed.ptr == end && micros >= 0 && micros <= kMicrosMax) return from_micros(micros);
  query.problem(key, kTimeRule);
  return fallback;
}

std::optional<Nanos> read_duration(QueryFields& query, std::string_view key) {
  if (!query.has(key)) return std::nullopt;
  return from_micros(query.number(key, 0, kMicrosMax));
}

}  // namespace

void forbid_keeping(Response& response) {
  response.headers.emplace_back("Cache-Control", "private, no-store");
}

Response observed_response(std::string json) {
  Response response = json_response(std::move(json));
  forbid_keeping(response);
  return response;
}

std::vector<std::string_view> filter_keys(std::vector<std::string_view> more) {
  more.insert(more.end(), {"from", "until", "session", "run", "sampler", "request", "operation", "base_model", "user",
                           "service", "name", "text", "status", "min_duration", "max_duration"});
  return more;
}

telemetry_store::TimeRange read_range(QueryFields& query, Nanos now) {
  telemetry_store::TimeRange range;
  range.until = read_time(query, "until", now, 0);
  const Nanos end = range.until == 0 ? now : range.until;
  range.from = read_time(query, "from", now, std::max<Nanos>(0, end - kDefaultRange));
  if (range.from >= end && query.status().ok()) query.problem("from", "must be before until");
  return range;
}

telemetry_store::Filter read_filter(QueryFields& query, Nanos now) {
  telemetry_store::Filter filter;
  filter.time = read_range(query, now);
  const auto read = [&query](std::string_view key) { return query.text(key, kTextBytesMax).value_or(""); };
  filter.session = read("session");
  filter.run = read("run");
  filter.sampler = read("sampler");
  filter.request = read("request");
  filter.operation = read("operation");
  filter.base_model = read("base_model");
  filter.user = read("user");
  filter.service = read("service");
  filter.name = read("name");
  filter.text = read("text");
  if (const std::string_view status = query.word("status", "", {"ok", "error"}); !status.empty()) {
    filter.failed = status == "error";
  }
  filter.duration_min = read_duration(query, "min_duration");
  filter.duration_max = read_duration(query, "max_duration");
  if (filter.duration_min && filter.duration_max && *filter.duration_min > *filter.duration_max) {
    query.problem("min_duration", "must not be above max_duration");
  }
  return filter;
}

telemetry_store::PageOf read_page(QueryFields& query, int64_t limit_default, int64_t limit_max) {
  return {static_cast<size_t>(query.integer("limit", limit_default, 1, limit_max)),
          query.text("cursor", kCursorBytesMax).value_or("")};
}

control::Part read_part(QueryFields& query) {
  return {static_cast<size_t>(query.integer("cursor", 0, 0, kOffsetMax)),
          static_cast<size_t>(query.integer("limit", kListedDefault, 1, kListedMax))};
}

Nanos read_step(QueryFields& query, const telemetry_store::TimeRange& range) {
  const Nanos step = read_duration(query, "step").value_or(0);
  if (!query.has("step")) return 0;
  const Nanos end = range.until == 0 ? system_clock().wall() : range.until;
  if (step <= 0 || (end - range.from) / step >= kStepsMax) {
    query.problem("step",
                  "must be microseconds, so many that at most 2000 steps cover the time from `from` to `until`");
    return 0;
  }
  return step;
}

std::string read_hex(QueryFields& query, std::string_view key, size_t digits) {
  std::string text = query.text(key, kTextBytesMax).value_or("");
  const bool is_hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (text.empty() || (text.size() == digits && is_hex)) return text;
  query.problem(key, "must be " + std::to_string(digits) + " hexadecimal digits in lower case");
  return {};
}

}  // namespace tuft::api
