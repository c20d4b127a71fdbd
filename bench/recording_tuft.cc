// tuft_recording_tuft ENDPOINT: our recording path, asked by bench/run.py. See recording_runner.h.
#include <stdexcept>

#include "metrics/futures.h"
#include "recording_runner.h"
#include "telemetry/instrument.h"
#include "telemetry/log.h"
#include "telemetry/telemetry.h"
#include "telemetry/trace.h"

namespace tuft::bench {
namespace {

using namespace telemetry;  // NOLINT(google-build-using-namespace): a program of one file

const std::string kSession = "3f0c8a52-6f4e-4b51-9d0b-0d3f7c1b2a49";

void record_span(const Tracer& tracer, int64_t i) {
  tracer.start_span("hf_model.forward_backward", {.attributes = {{"tuft.session_id", kSession},
                                                                 {"tuft.training_run_id", kSession},
                                                                 {"tuft.lora_id", kSession},
                                                                 {"tuft.backward", true},
                                                                 {"tuft.data_count", i},
                                                                 {"tuft.num_micro_batches", 1}}});
}

void record_log() {
  log_info("future.enqueued", "operation accepted",
           {{"tuft.request_id", kSession}, {"tuft.operation_type", "sample"}, {"tuft.seq_id", 3}});
}

// An event of an operation as a server exports it by default: the console does not show it.
void record_exported_log(const SpanContext& operation) {
  const ContextScope scope(operation);
  log_debug("future.enqueued", "operation accepted",
            {{"tuft.request_id", kSession}, {"tuft.operation_type", "sample"}, {"tuft.seq_id", 3}});
}

SpanContext share_keys(const SpanContext& parent) {
  return share(parent, {{"tuft.session_id", kSession},
                        {"tuft.training_run_id", kSession},
                        {"tuft.request_id", kSession},
                        {"tuft.operation_type", "sample"},
                        {"tuft.base_model", "Qwen/Qwen3-0.6B"}});
}

Recorder make(const std::string& endpoint) {
  init_logging({});
  // "-" turns recording off, as in a server without telemetry.
  TelemetryConfig config;
  config.enabled = endpoint != "-";
  config.metrics_endpoint = config.enabled;
  if (config.enabled) config.otlp_endpoint = endpoint;
  const Status started = init_telemetry(config);
  if (!started.ok()) throw std::runtime_error(started.error().message);

  const Tracer tracer = get_tracer("tuft.bench");
  const BoundCounter counter = metrics::futures().created.with({{"operation_type", "sample"}});
  const BoundHistogram histogram = metrics::futures().wait_time.with({{"operation_type", "sample"}});
  const SpanContext plain = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  const SpanContext shared = share_keys(plain);
  return {.operations = {{"log, exported only", [shared](int64_t) { record_exported_log(shared); }},
                         {"share", [plain](int64_t) { share_keys(plain); }},
                         {"span, no attributes",
                          [tracer, plain](int64_t) { tracer.start_span("PREFILL", {.parent = plain}); }},
                         {"span, no attributes, shared keys",
                          [tracer, shared](int64_t) { tracer.start_span("PREFILL", {.parent = shared}); }},
                         {"span", [tracer](int64_t i) { record_span(tracer, i); }},
                         {"counter, bound", [counter](int64_t) { counter.add(1); }},
                         {"counter",
                          [](int64_t) {
                            metrics::futures().created.add(1, {{"operation_type", "sample"}});
                          }},
                         {"histogram, bound",
                          [histogram](int64_t i) { histogram.record(static_cast<double>(i % 1000) * 0.001); }},
                         // Each takes the first measurement of a round as an exemplar.
                         {"histogram in a trace, bound",
                          [histogram](int64_t i) {
                            const ContextScope scope({1, 2, 3, 1});
                            histogram.record(static_cast<double>(i % 1000) * 0.001);
                          }},
                         {"histogram",
                          [](int64_t i) {
                            metrics::futures().wait_time.record(static_cast<double>(i % 1000) * 0.001,
                                                                {{"operation_type", "sample"}});
                          }},
                         {"log", [](int64_t) { record_log(); }}},
          .drain = [] { flush_telemetry(10 * kSecond); },
          .close = [] { shutdown_telemetry(); }};
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  return tuft::bench::run_recorder(argc, argv, tuft::bench::make);
}
