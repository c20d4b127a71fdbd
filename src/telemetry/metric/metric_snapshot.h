// Decodes metrics that another process of ours encoded with otlp/encode_metrics.h. Internal to telemetry.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "telemetry/metric/metric_store.h"

namespace tuft::telemetry::internal {

// Returns the sums, gauges and histograms of an ExportMetricsServiceRequest with cumulative values. Leaves out points
// whose bounds differ from those of the metric's first point, and points without a value. A counter whose values are
// not whole becomes an observable counter.
Result<std::vector<MetricSnapshot>> decode_metrics(std::string_view bytes);

// Returns the attributes of an encoded Resource as text.
Result<LabelStrings> decode_resource(std::string_view bytes);

}  // namespace tuft::telemetry::internal
