#include "telemetry/otlp/exporter.h"

#include "base/file.h"
#include "telemetry/otlp/exporters.h"

namespace tuft::telemetry::internal {

std::string_view signal_name(Signal signal) {
  switch (signal) {
    case Signal::kTraces:
      return "traces";
    case Signal::kLogs:
      return "logs";
    case Signal::kMetrics:
      return "metrics";
  }
  return "traces";
}

Result<std::unique_ptr<Exporter>> make_exporter(Signal signal, const SignalSettings& settings) {
  switch (settings.protocol) {
    case Protocol::kGrpc:
      return otlp::make_grpc_exporter(signal, settings);
    case Protocol::kHttpProtobuf:
      return otlp::make_http_exporter(signal, settings);
    case Protocol::kFile:
      return otlp::make_file_exporter(signal, settings);
    case Protocol::kConsole:
      return otlp::make_console_exporter(signal, settings);
    case Protocol::kNone:
      break;
  }
  return invalid_argument("a disabled signal has no exporter");
}

Result<std::string> otlp::read_credential(std::string_view what, const std::string& path) {
  constexpr size_t kBytesMax = size_t{1} << 20;
  auto content = read_file(path, kBytesMax);
  if (content.ok()) return content;
  return invalid_argument(
      std::string(what) + " '" + path + "' of the telemetry exporter cannot be read: " + content.error().message,
      "telemetry_credentials");
}

}  // namespace tuft::telemetry::internal
