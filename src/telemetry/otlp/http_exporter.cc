#include "telemetry/otlp/exporters.h"

namespace tuft::telemetry::internal::otlp {

Result<std::unique_ptr<Exporter>> make_http_exporter(Signal, const SignalSettings&) {
  return internal_error("the http exporter is not there yet");
}

}  // namespace tuft::telemetry::internal::otlp
