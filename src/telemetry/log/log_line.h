// Formats log lines. Internal to telemetry.
#pragma once

#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "telemetry/attribute.h"
#include "telemetry/context.h"
#include "telemetry/log.h"

namespace tuft::telemetry::internal {

struct LogLine {
  Nanos time = 0;  // wall
  Severity severity = Severity::kInfo;
  std::string_view process;
  std::string_view event;
  std::string_view message;
  Attributes attributes;
  SpanContext context;
  std::source_location where;
};

// Returns "DEBUG", "INFO", "WARNING" or "ERROR".
std::string_view severity_name(Severity severity);

// Appends one line without a line end. Control characters in values are escaped, so that a value can neither end the
// line nor forge another.
//   2026-01-02T03:04:05.678Z INFO    tuft [session.created] session created tuft.session_id=abc trace_id=.. span_id=..
void append_text(std::string& out, const LogLine& line);
// Appends one JSON object: time, level, process, event, message, the attributes, trace_id, span_id and code.*.
void append_json(std::string& out, const LogLine& line);

// Returns `text` as valid UTF-8; invalid bytes become U+FFFD.
std::string to_utf8(std::string_view text);

// Sets the lowest level of the library's own records (events "telemetry.*"); nullopt: there are none. If nothing is
// `said`, it is that of all records. Defined in log.cc.
void set_own_log_level(bool said, std::optional<Severity> level);
// Sets the lowest level of the records that are exported. Defined in log.cc.
void set_exported_log_level(Severity level);

// Updates tuft.telemetry.dropped{signal=log_lines}. Defined in log.cc.
void count_dropped_log_lines();

}  // namespace tuft::telemetry::internal
