// Logs: one line on stderr (text or JSON) and, with telemetry on, one OpenTelemetry log record with the ids of the
// current span. Every event has a stable name; what varies stands in attributes.
//
//   log_info("session.created", "session created", {{"tuft.session_id", id}});
//
// Never a prompt, a token, a key or a datum. Thread-safe; cheap enough for request threads (the line is written by the
// logging thread, a full queue drops and counts).
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

// "debug", "info", "warning" ("warn"), "error".
Result<Severity> parse_severity(std::string_view text);

struct LogOptions {
  Severity level = Severity::kInfo;
  LogFormat format = LogFormat::kText;
  // Stands in front of each line; the worker's is the name of its base model.
  std::string process = "tuft";
};

// Once, before other threads start. Before it, lines go to stderr as text from kInfo on.
void init_logging(const LogOptions& options);
// Writes what is queued. For the end of main().
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

}  // namespace tuft::telemetry
