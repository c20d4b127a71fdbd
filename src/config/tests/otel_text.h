// A file of OpenTelemetry's declarative configuration.
#pragma once

namespace tuft::config {

inline constexpr const char* kTraces = R"(file_format: "1.1"
tracer_provider:
  processors: [{batch: {exporter: {otlp_http: }}}]
)";

}  // namespace tuft::config
