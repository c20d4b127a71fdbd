// Reads OpenTelemetry's declarative configuration, the file that OTEL_CONFIG_FILE names: the schema's file_format 1.0
// and 1.1. docs/configuration.md lists what is supported; everything else is an error that names the key's path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/document.h"
#include "telemetry/telemetry.h"

namespace tuft::config {

struct OtelFile {
  // Complete: no OTEL_* variable is read beside it (environment_ignored).
  telemetry::TelemetryConfig config;
  std::vector<std::string> warnings;
};

// Parses the text of a file. `origin` begins each message.
Result<OtelFile> parse_otel_file(std::string_view yaml, std::string_view origin);

// Replaces ${NAME}, ${env:NAME} and ${NAME:-default} in all scalar values, and $$ by $, as OpenTelemetry defines it: an
// unset variable is empty, values are not substituted again, and keys are left as they are.
Status substitute_environment(Node& root, std::string_view origin);

// Replaces what OpenTelemetry's file decides in `config`, which was read from `section`, the section telemetry of the
// server's configuration (null if it is absent). The rest of the section keeps its effect: keep_errors,
// keep_slower_than_seconds, trace_archive_bytes, shutdown_budget_seconds, metrics_endpoint, metrics_token,
// tenant_label, store, intake, a service_name if the file has none, and an `enabled: false`. Other keys of the section
// give a warning each.
Status use_otel_file(const std::string& path, const Node* section, std::string_view section_origin,
                     telemetry::TelemetryConfig& config, std::vector<std::string>& warnings);

}  // namespace tuft::config
