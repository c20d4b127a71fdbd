// The kinds of exporters, see make_exporter(). Internal to telemetry.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "telemetry/exporter.h"
#include "telemetry/settings.h"

namespace tuft::telemetry::internal::otlp {

Result<std::unique_ptr<Exporter>> make_grpc_exporter(Signal signal, const SignalSettings& settings);
// OTLP/HTTP with protobuf bodies.
Result<std::unique_ptr<Exporter>> make_http_exporter(Signal signal, const SignalSettings& settings);
// OTLP JSON, a request a line, appended: what the Collector's file exporter writes and its otlpjsonfile receiver reads.
// Several exporters and processes may share the file.
Result<std::unique_ptr<Exporter>> make_file_exporter(Signal signal, const SignalSettings& settings);
// Lines for people on stdout, one a span, log record or metric point.
Result<std::unique_ptr<Exporter>> make_console_exporter(Signal signal, const SignalSettings& settings);

// The whole file; the error names `what` it is, e.g. "the CA certificate".
Result<std::string> read_credential(std::string_view what, const std::string& path);

}  // namespace tuft::telemetry::internal::otlp
