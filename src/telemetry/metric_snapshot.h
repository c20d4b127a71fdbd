// Metrics as bytes, from one process of ours to another: an OTLP ExportMetricsServiceRequest. Internal to telemetry.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "telemetry/metric_store.h"

namespace tuft::telemetry::internal {

// Cumulative, without a resource.
std::string encode_metrics(const std::vector<MetricSnapshot>& metrics);

// What of it is a sum, a gauge or a histogram; points whose bounds differ from those of the metric's first point, and
// points without a value, are left out. Counters come back as observable ones where their values are not whole.
Result<std::vector<MetricSnapshot>> decode_metrics(std::string_view bytes);

}  // namespace tuft::telemetry::internal
