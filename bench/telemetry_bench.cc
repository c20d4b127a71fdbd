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

void telemetry_off(benchmark::State& state) {
  span_six_attributes(state);
}
void counter_off(benchmark::State& state) {
  counter_bound(state);
}

// What does not fit into the ring is dropped and costs less: run with the share that was kept.
double kept_share(const testing::OtlpReceiver& receiver) {
  const auto dropped = receiver.metric("tuft.telemetry.dropped");
  double lost = 0;
  if (dropped) {
    for (const auto& point : dropped->points) {
      if (text_of(point.labels, "signal") == "traces") lost += point.value;
    }
  }
  const double kept = static_cast<double>(receiver.spans().size());
  return kept + lost > 0 ? kept / (kept + lost) : 0;
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  init_logging({});
  benchmark::RegisterBenchmark("off/span_six_attributes", telemetry_off);
  benchmark::RegisterBenchmark("off/counter_bound", counter_off);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();

  const testing::OtlpReceiver receiver;
  TelemetryConfig config;
  config.enabled = true;
  config.otlp_endpoint = receiver.endpoint();
  if (!init_telemetry(config).ok()) return 1;
  // Few enough for the ring: what is measured is recording, not dropping.
  benchmark::RegisterBenchmark("on/span_six_attributes", span_six_attributes)->Iterations(1500)->Repetitions(20);
  benchmark::RegisterBenchmark("on/counter_bound", counter_bound);
  benchmark::RegisterBenchmark("on/counter_by_labels", counter_by_labels);
  benchmark::RegisterBenchmark("on/histogram_bound", histogram_bound);
  benchmark::RegisterBenchmark("on/log_below_level", log_below_level);
  benchmark::RegisterBenchmark("on/log_three_attributes", log_three_attributes)->Iterations(2000);
  benchmark::RunSpecifiedBenchmarks();
  flush_telemetry(10 * kSecond);
  flush_telemetry(10 * kSecond);
  std::printf("spans kept: %.1f %%\n", 100 * kept_share(receiver));
  shutdown_telemetry();
  flush_logging();
  return 0;
}

}  // namespace
}  // namespace tuft::telemetry

int main(int argc, char** argv) {
  return tuft::telemetry::run(argc, argv);
}
