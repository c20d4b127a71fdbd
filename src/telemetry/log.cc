#include "telemetry/log.h"

#include <cstdio>

#include "telemetry/context.h"

namespace tuft::telemetry {

Result<Severity> parse_severity(std::string_view text) {
  if (text == "debug") return Severity::kDebug;
  if (text == "info") return Severity::kInfo;
  if (text == "warning" || text == "warn") return Severity::kWarning;
  if (text == "error") return Severity::kError;
  return invalid_argument("unknown log level '" + std::string(text) + "': use debug, info, warning or error");
}

void init_logging(const LogOptions&) {}
void flush_logging() {}

void log(Severity severity, Name event, std::string_view message, Attributes attributes, std::source_location) {
  if (severity < Severity::kInfo) return;
  std::string line = "[" + std::string(event.view()) + "] " + std::string(message);
  for (const Attribute& attribute : attributes) {
    line += " " + std::string(attribute.key.view()) + "=";
    switch (attribute.value.kind()) {
      case AttributeValue::Kind::kBool: line += attribute.value.as_bool() ? "true" : "false"; break;
      case AttributeValue::Kind::kInt: line += std::to_string(attribute.value.as_int()); break;
      case AttributeValue::Kind::kDouble: line += std::to_string(attribute.value.as_double()); break;
      case AttributeValue::Kind::kString: line += attribute.value.as_string(); break;
    }
  }
  line += "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace tuft::telemetry
