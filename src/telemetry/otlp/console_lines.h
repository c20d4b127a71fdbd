// Telemetry as text for people, a line a span, log record or metric point. Internal to telemetry.
//   SPAN   2026-01-02T03:04:05.678901Z 1.204ms store.get trace=<32 hex> span=<16 hex> parent=<16 hex> scope=tuft.store
//   a=1 LOG    2026-01-02T03:04:05.678901Z INFO session.created "session created" trace=.. span=.. a=1 METRIC
//   2026-01-02T03:04:05.678901Z tuft.futures.created{operation_type="sample"} 3 {future}
#pragma once

#include <string>

namespace opentelemetry::proto::collector {
namespace trace::v1 {
class ExportTraceServiceRequest;
}
namespace logs::v1 {
class ExportLogsServiceRequest;
}
namespace metrics::v1 {
class ExportMetricsServiceRequest;
}
}  // namespace opentelemetry::proto::collector

namespace tuft::telemetry::internal::otlp {

std::string console_lines(const opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest& request);
std::string console_lines(const opentelemetry::proto::collector::logs::v1::ExportLogsServiceRequest& request);
std::string console_lines(const opentelemetry::proto::collector::metrics::v1::ExportMetricsServiceRequest& request);

}  // namespace tuft::telemetry::internal::otlp
