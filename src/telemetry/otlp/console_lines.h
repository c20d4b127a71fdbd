// Telemetry as readable text: one line per span, log record or metric point. Internal to telemetry.
//
//   SPAN   <time> 1.204ms store.get trace=<32 hex> span=<16 hex> parent=<16 hex> scope=tuft.store a=1
//
//   LOG    <time> INFO session.created "session created" trace=<32 hex> span=<16 hex> a=1
//
//   METRIC <time> tuft.futures.created{operation_type="sample"} 3 {future}
//
// <time> is like 2026-01-02T03:04:05.678901Z.
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
