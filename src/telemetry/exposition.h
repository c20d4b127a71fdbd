// The metrics page: the metrics of this process and of its workers in Prometheus' text format or in OpenMetrics.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::telemetry {

enum class ExpositionFormat : uint8_t { kPrometheusText, kOpenMetrics };

// Returns the format that a scraper's Accept header asks for.
ExpositionFormat negotiate_format(std::string_view accept);
// Returns the Content-Type of the page, with charset and version.
std::string_view content_type(ExpositionFormat format);

// Returns all metrics of this process as an encoded ExportMetricsServiceRequest, for render_metrics() in another
// process. Thread-safe.
std::string metrics_snapshot();

struct WorkerMetrics {
  std::string worker;    // becomes the label `worker` of each of its series
  std::string snapshot;  // the result of metrics_snapshot() there
};

// Returns the page. Names follow OpenTelemetry's rules for Prometheus: dots become underscores; units and _total are
// appended. A snapshot that cannot be read is left out and counted. Thread-safe; runs the callbacks of the observable
// instruments.
std::string render_metrics(ExpositionFormat format, const std::vector<WorkerMetrics>& workers);

}  // namespace tuft::telemetry
