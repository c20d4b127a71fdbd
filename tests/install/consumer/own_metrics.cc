// A program that records instruments of its own, as docs/telemetry.md shows, and checks that the metrics page has them.
#include <cstdio>
#include <string>
#include <string_view>

#include "tuft/telemetry/exposition.h"
#include "tuft/telemetry/instrument.h"
#include "tuft/telemetry/telemetry.h"

using namespace tuft::telemetry;

namespace {

struct OwnMetrics {
  Counter operations{{.name = "my_app.operations",
                      .unit = "{operation}",
                      .description = "Operations that ended",
                      .labels = {"operation_type", "status"}}};
  Histogram duration{{.name = "my_app.operation.duration",
                      .unit = "ms",
                      .description = "Duration of operations",
                      .labels = {"operation_type"},
                      .bounds = {10, 50, 100, 200, 500, 1000}}};
};

const OwnMetrics& own_metrics() {
  static const OwnMetrics metrics;
  return metrics;
}

void record_operation(double milliseconds) {
  own_metrics().operations.add(1, {{"operation_type", "custom"}, {"status", "ok"}});
  own_metrics().duration.record(milliseconds, {{"operation_type", "custom"}});
}

}  // namespace

int main() {
  // Nothing is exported; the page needs no collector.
  if (!init_telemetry({.metrics_endpoint = true}).ok()) return 1;
  record_operation(75);
  record_operation(2000);
  const std::string page = render_metrics(ExpositionFormat::kPrometheusText, {});
  int missing = 0;
  for (const std::string_view line :
       {"# HELP my_app_operations_total Operations that ended\n",
        "my_app_operations_total{operation_type=\"custom\",status=\"ok\"} 2\n",
        "# TYPE my_app_operation_duration_milliseconds histogram\n",
        "my_app_operation_duration_milliseconds_bucket{operation_type=\"custom\",le=\"50\"} 0\n",
        "my_app_operation_duration_milliseconds_bucket{operation_type=\"custom\",le=\"100\"} 1\n",
        "my_app_operation_duration_milliseconds_bucket{operation_type=\"custom\",le=\"1000\"} 1\n",
        "my_app_operation_duration_milliseconds_bucket{operation_type=\"custom\",le=\"+Inf\"} 2\n"}) {
    if (page.find(line) != std::string::npos) continue;
    std::fprintf(stderr, "the metrics page lacks: %s", std::string(line).c_str());
    ++missing;
  }
  shutdown_telemetry();
  return missing == 0 ? 0 : 1;
}
