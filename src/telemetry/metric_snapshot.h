// Reading the OTLP that another process of ours wrote (otlp/encode_metrics.h). Internal to telemetry.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "telemetry/metric_store.h"

namespace tuft::telemetry::internal {

// What of an ExportMetricsServiceRequest with cumulative values is a sum, a gauge or a histogram; points whose bounds
// differ from those of the metric's first point, and points without a value, are left out. Counters come back as
// observable ones where their values are not whole.
Result<std::vector<MetricSnapshot>> decode_metrics(std::string_view bytes);

// The attributes of an encoded Resource, as text.
Result<LabelStrings> decode_resource(std::string_view bytes);

}  // namespace tuft::telemetry::internal
