// Logs. Each record is one line on stderr (text or JSON) and, with telemetry on, one OpenTelemetry log record with the
// ids of the current span. An event has a stable name; values that vary are attributes.
//
//   log_info("session.created", "session created", {{"tuft.session_id", id}});
//
// Never log a prompt, a token, a key or a datum. Thread-safe. A logging thread writes the lines; a full queue drops
// lines and counts them, so that callers never wait.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "base/result.h"
#include "telemetry/attribute.h"

namespace tuft::telemetry {

enum class Severity : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

// Parses "debug", "info", "warning" (or "warn") and "error".
Result<Severity> parse_severity(std::string_view text);

struct LogOptions {
  Severity level = Severity::kInfo;
  LogFormat format = LogFormat::kText;
  // The text that precedes each line. A worker uses the name of its base model.
  std::string process = "tuft";
};

// Must be called once, before other threads start. Until then lines go to stderr as text, from kInfo on.
void init_logging(const LogOptions& options);
// Writes the queued lines. Must be called at the end of main().
void flush_logging();

void log(Severity severity, Name event, std::string_view message, Attributes attributes = {},
         std::source_location where = std::source_location::current());

inline void log_debug(Name event, std::string_view message, Attributes attributes = {},
                      std::source_location where = std::source_location::current()) {
  log(Severity::kDebug, event, message, attributes, where);
}
inline void log_info(Name event, std::string_view message, Attributes attributes = {},
                     std::source_location where = std::source_location::current()) {
  log(Severity::kInfo, event, message, attributes, where);
}
inline void log_warning(Name event, std::string_view message, Attributes attributes = {},
                        std::source_location where = std::source_location::current()) {
  log(Severity::kWarning, event, message, attributes, where);
}
inline void log_error(Name event, std::string_view message, Attributes attributes = {},
                      std::source_location where = std::source_location::current()) {
  log(Severity::kError, event, message, attributes, where);
}

// Counts, in tuft.telemetry.log_suppressed, a record of `event` that a rate limit of the caller suppressed.
void count_suppressed_log(Name event);

}  // namespace tuft::telemetry
