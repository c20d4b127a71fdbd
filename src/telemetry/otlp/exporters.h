// The implementations of Exporter; make_exporter() chooses one. Internal to telemetry.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "telemetry/otlp/exporter.h"
#include "telemetry/settings/settings.h"

namespace tuft::telemetry::internal::otlp {

Result<std::unique_ptr<Exporter>> make_grpc_exporter(Signal signal, const SignalSettings& settings);
// OTLP/HTTP with protobuf bodies.
Result<std::unique_ptr<Exporter>> make_http_exporter(Signal signal, const SignalSettings& settings);
// Appends OTLP JSON, one request per line, in the format of the Collector's file exporter and otlpjsonfile receiver.
// Several exporters and processes may share the file.
Result<std::unique_ptr<Exporter>> make_file_exporter(Signal signal, const SignalSettings& settings);
// Writes readable lines to stdout, one per span, log record or metric point.
Result<std::unique_ptr<Exporter>> make_console_exporter(Signal signal, const SignalSettings& settings);

// Returns the whole file. `what` describes the file in the error message, e.g. "the CA certificate".
Result<std::string> read_credential(std::string_view what, const std::string& path);

}  // namespace tuft::telemetry::internal::otlp
