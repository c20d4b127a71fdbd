// Sends metrics to Prometheus' receiver for OTLP and traces to Tempo, Jaeger or a Collector, all over HTTP, as the
// examples/metrics-monitoring of Transformers does. The variables decide where to; these are their defaults:
//
//   OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://localhost:9090/api/v1/otlp/v1/metrics
//   OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://localhost:4318/v1/traces
//   OTEL_METRICS_EXPORT_INTERVAL=1000 OTEL_SERVICE_NAME=metrics-example
//
// Prometheus needs --web.enable-otlp-receiver. deploy/grafana starts it so, with a Collector that takes the traces.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tuft/telemetry/instrument.h"
#include "tuft/telemetry/log.h"
#include "tuft/telemetry/telemetry.h"
#include "tuft/telemetry/trace.h"
#include "tuft/telemetry/traced.h"

using namespace tuft::telemetry;

namespace {

struct ExampleMetrics {
  // In Prometheus: example_operations_total, custom_operation_duration_milliseconds, example_items_active.
  Counter operations{{.name = "example.operations",
                      .unit = "{operation}",
                      .description = "Operations that ended",
                      .labels = {"operation_type"}}};
  Histogram duration{{.name = "custom_operation_duration",
                      .unit = "ms",
                      .description = "Duration of custom operations",
                      .labels = {"operation_type"},
                      .bounds = {10, 50, 100, 200, 500, 1000}}};
  UpDownCounter active{{.name = "example.items.active", .unit = "{item}", .description = "Items in work"}};
};

const ExampleMetrics& example_metrics() {
  static const ExampleMetrics metrics;
  return metrics;
}

class Example {
  TUFT_TRACED_CLASS("example");

 public:
  // One line traces a function; what it calls is below it.
  int process_data(int data) {
    TUFT_TRACED_FUNCTION({"data.size", data});
    return custom_operation(data) + 1;
  }

 private:
  int custom_operation(int value) {
    TUFT_TRACED_FUNCTION({"operation.type", "custom"}, {"operation.priority", "high"});
    const auto begin = std::chrono::steady_clock::now();
    example_metrics().active.add(1);
    const int result = value * value;
    example_metrics().active.add(-1);
    const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
    example_metrics().duration.record(passed.count(), {{"operation_type", "custom"}});
    example_metrics().operations.add(1, {{"operation_type", "custom"}});
    return result;
  }
};

void set_default(const char* variable, const char* value) {
  ::setenv(variable, value, /*overwrite=*/0);
}

}  // namespace

int main() {
  set_default("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://localhost:9090/api/v1/otlp/v1/metrics");
  set_default("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:4318/v1/traces");
  set_default("OTEL_METRICS_EXPORT_INTERVAL", "1000");
  set_default("OTEL_SERVICE_NAME", "metrics-example");
  TelemetryConfig config{.enabled = true};
  config.logs.enabled = false;  // Prometheus and Tempo take none
  if (const tuft::Status status = init_telemetry(config); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    return 1;
  }
  Example example;
  int sum = 0;
  for (int i = 0; i < 10; ++i) sum += example.process_data(i);
  std::printf("processed 10 items, the sum is %d\n", sum);
  const bool arrived = flush_telemetry(10 * tuft::kSecond);
  shutdown_telemetry();
  flush_logging();
  return arrived ? 0 : 1;
}
