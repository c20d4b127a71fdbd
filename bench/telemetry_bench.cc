// What recording costs on the calling thread. Budgets: span with six attributes 250 ns, disabled 20 ns, bound counter
// and histogram 20 ns. The cases marked `off` run before telemetry is started; the others export to a collector in
// this process, so that draining and exporting compete for the processor as they do in the server.
#include <cstdio>
#include <string>

#include <benchmark/benchmark.h>

#include "telemetry/log.h"
#include "telemetry/metrics.h"
#include "telemetry/telemetry.h"
#include "telemetry/testing/otlp_receiver.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

const std::string kSession = "3f0c8a52-6f4e-4b51-9d0b-0d3f7c1b2a49";

void record_span(const Tracer& tracer, int64_t i) {
  Span span = tracer.start_span("hf_model.forward_backward", {.attributes = {{"tuft.session_id", kSession},
                                                                             {"tuft.training_run_id", kSession},
                                                                             {"tuft.lora_id", kSession},
                                                                             {"tuft.backward", true},
                                                                             {"tuft.data_count", i},
                                                                             {"tuft.num_micro_batches", 1}}});
  benchmark::DoNotOptimize(span);
}

void span_six_attributes(benchmark::State& state) {
  const Tracer tracer = get_tracer("tuft.bench");
  int64_t i = 0;
  for (auto _ : state) record_span(tracer, ++i);
}

// As many as the ring holds, and the ring emptied before: recording is measured, not dropping.
void span_six_attributes_kept(benchmark::State& state) {
  flush_telemetry(10 * kSecond);
  span_six_attributes(state);
}

void counter_bound(benchmark::State& state) {
  const BoundCounter counter = get_metrics().futures_created.with({{"operation_type", "sample"}});
  for (auto _ : state) counter.add(1);
}

void counter_by_labels(benchmark::State& state) {
  for (auto _ : state) get_metrics().futures_created.add(1, {{"operation_type", "sample"}});
}

void histogram_bound(benchmark::State& state) {
  const BoundHistogram histogram = get_metrics().futures_wait_time.with({{"operation_type", "sample"}});
  double value = 0.0001;
  for (auto _ : state) {
    histogram.record(value);
    value = value < 100 ? value * 1.3 : 0.0001;
  }
}

void log_three_attributes(benchmark::State& state) {
  for (auto _ : state)
    log_info("future.enqueued", "operation accepted",
             {{"tuft.request_id", kSession}, {"tuft.operation_type", "sample"}, {"tuft.seq_id", 3}});
}

void log_below_level(benchmark::State& state) {
  for (auto _ : state)
    log_debug("future.enqueued", "operation accepted",
              {{"tuft.request_id", kSession}, {"tuft.operation_type", "sample"}, {"tuft.seq_id", 3}});
}

// What does not fit into the ring is dropped and costs less: run with the share that was kept.
double kept_share(const testing::OtlpReceiver& receiver) {
  const auto dropped = receiver.metric("tuft.telemetry.dropped");
  double lost = 0;
  if (dropped) {
    for (const auto& point : dropped->points) {
      if (testing::text_of(point.labels, "signal") == "traces") lost += point.value;
    }
  }
  const double kept = static_cast<double>(receiver.spans().size());
  return kept + lost > 0 ? kept / (kept + lost) : 0;
}

struct Running {
  testing::OtlpReceiver receiver;
  Running() {
    TelemetryConfig config;
    config.enabled = true;
    config.otlp_endpoint = receiver.endpoint();
    const Status status = init_telemetry(config);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  }
};

// Started by the first case that needs it; cases run in the order of their registration.
Running& running() {
  static Running& running = *new Running;
  return running;
}

template <void (*kCase)(benchmark::State&)>
void with_telemetry(benchmark::State& state) {
  running();
  kCase(state);
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  init_logging({});
  benchmark::RegisterBenchmark("off/span_six_attributes", span_six_attributes);
  benchmark::RegisterBenchmark("off/counter_bound", counter_bound);
  benchmark::RegisterBenchmark("on/span_six_attributes", with_telemetry<span_six_attributes_kept>)
      ->Iterations(1500)
      ->Repetitions(30)
      ->ReportAggregatesOnly();
  benchmark::RegisterBenchmark("on/counter_bound", with_telemetry<counter_bound>);
  benchmark::RegisterBenchmark("on/counter_by_labels", with_telemetry<counter_by_labels>);
  benchmark::RegisterBenchmark("on/histogram_bound", with_telemetry<histogram_bound>);
  benchmark::RegisterBenchmark("on/log_below_level", with_telemetry<log_below_level>);
  benchmark::RegisterBenchmark("on/log_three_attributes", with_telemetry<log_three_attributes>)->Iterations(2000);
  benchmark::RunSpecifiedBenchmarks();
  if (telemetry_enabled()) {
    flush_telemetry(10 * kSecond);
    flush_telemetry(10 * kSecond);
    std::printf("spans kept: %.1f %%\n", 100 * kept_share(running().receiver));
    shutdown_telemetry();
  }
  flush_logging();
  return 0;
}

}  // namespace
}  // namespace tuft::telemetry

int main(int argc, char** argv) {
  return tuft::telemetry::run(argc, argv);
}
