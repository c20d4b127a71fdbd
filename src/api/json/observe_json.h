// Encodes what the observer answers. Times and durations are in microseconds, with a fraction; what is not known is
// null. Texts may come from users' programs: bytes that are not UTF-8 become '?'.
#pragma once

#include <string>
#include <string_view>

#include "api/json/future_json.h"
#include "api/json/json_writer.h"
#include "base/clock.h"
#include "control/observe/views.h"
#include "telemetry_store/query.h"

namespace tuft::api {

// Writes nanoseconds as microseconds: 1500 as 1.5.
void write_micros(JsonWriter& json, Nanos nanos);

std::string traces_json(const telemetry_store::TracePage& page);
std::string durations_json(const telemetry_store::DurationHistogram& histogram);
// The points are durations where the function makes them of durations.
std::string series_json(const telemetry_store::SpanSeries& series, telemetry_store::SpanFunction function);
// In pieces, because a trace can be long. They keep the trace.
JsonPieces trace_pieces(std::string trace_id, std::shared_ptr<const control::ObservedTrace> observed);
void write_log(JsonWriter& json, const telemetry_store::LogRecord& record);
JsonPieces log_pieces(std::shared_ptr<const telemetry_store::LogPage> page);
std::string metrics_json(const std::vector<telemetry_store::MetricInfo>& metrics);
// `function` is the word of the request.
std::string metric_json(const telemetry_store::MetricAnswer& answer, std::string_view function);
std::string exemplars_json(const std::vector<telemetry_store::MetricExemplar>& exemplars);
std::string steps_json(const std::vector<telemetry_store::RunStep>& steps);

std::string overview_json(const control::Overview& overview, std::string_view version);
std::string runs_json(const control::PartOf<control::RunRow>& runs);
std::string run_json(const control::RunDetails& details);
std::string samplers_json(const control::PartOf<control::SamplerRow>& samplers);
std::string sessions_json(const control::PartOf<control::SessionRow>& sessions);
std::string tenants_json(const std::vector<control::TenantRow>& tenants);
std::string workers_json(const std::vector<control::WorkerInstance>& workers);
// `metrics_page`: the metrics of the server and its workers in Prometheus' text format, of which each worker shows its
// own; may be empty.
std::string system_json(const control::SystemView& system, std::string_view version, std::string_view metrics_page);

}  // namespace tuft::api
