// Metrics for a scraper: Prometheus' text format and OpenMetrics, of this process and of others beside it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::telemetry {

enum class ExpositionFormat : uint8_t { kPrometheusText, kOpenMetrics };

// What a scraper's Accept header asks for.
ExpositionFormat negotiate_format(std::string_view accept);
// With charset and version.
std::string_view content_type(ExpositionFormat format);

// All metrics of this process as bytes for render_metrics() in another one (an ExportMetricsServiceRequest).
std::string metrics_snapshot();

struct WorkerMetrics {
  std::string worker;    // becomes the label `worker` of each of its series
  std::string snapshot;  // of metrics_snapshot() there
};

// The metrics of this process and of its workers, family by family. Names follow OpenTelemetry's rules for Prometheus:
// dots become underscores, units and _total are appended. A snapshot that cannot be read is left out and counted.
// Thread-safe; runs the callbacks of the observable instruments.
std::string render_metrics(ExpositionFormat format, const std::vector<WorkerMetrics>& workers);

}  // namespace tuft::telemetry
