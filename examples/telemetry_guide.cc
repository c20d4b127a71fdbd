// The developer guide in code: how a module of your own records spans, metrics and logs. Built and run by the tests.
//
//   telemetry_guide [FILE]      writes OTLP JSON lines to FILE, else prints to the console
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tuft/telemetry/context.h"
#include "tuft/telemetry/log.h"
#include "tuft/telemetry/metrics.h"
#include "tuft/telemetry/telemetry.h"
#include "tuft/telemetry/trace.h"
#include "tuft/telemetry/traced.h"

using namespace tuft::telemetry;

namespace {

// ---- creating spans

tuft::Status load_weights(const std::string& base_model) {
  // One line traces a function: span "load_weights", below whatever span is current.
  TUFT_TRACED_FUNCTION({"tuft.base_model", base_model});
  // An error that is returned through it becomes the span's status and its exception event.
  if (base_model.empty()) return traced_function.returns(tuft::Status(tuft::invalid_argument("no base model")));
  return {};
}

void my_operation(const std::string& session_id, const std::string& training_run_id) {
  // Cheap to copy, and keeps its name for good: one a module.
  static const Tracer tracer = get_tracer("tuft.my_module");

  Span span = tracer.start_span("my_operation");
  span.set_attribute("tuft.session_id", session_id);
  span.set_attribute("tuft.training_run_id", training_run_id);

  // From here to the end of the scope, spans and logs of this thread hang below it.
  const ContextScope scope(span.context());

  if (load_weights("Qwen/Qwen3-0.6B").ok()) span.add_event("weights_loaded", {{"layers", 28}});
  const tuft::Status status = load_weights("");

  // Another thread: pass the context on and make it current there.
  std::thread([parent = span.context()] {
    const ContextScope here(parent);
    const Span step = tracer.start_span("my_step");
    // Another process: the same as a W3C header.
    inject(step.context(), [](std::string_view key, const std::string& value) {
      std::printf("%s: %s\n", std::string(key).c_str(), value.c_str());
    });
  }).join();

  // ---- logs: a stable event name; what varies stands in attributes; the ids of the current span come with them
  log_info("my_module.done", "my operation is done", {{"tuft.session_id", session_id}});
  if (!status.ok()) log_warning("my_module.failed", status.error().message);
}

// ---- recording metrics

void count_work() {
  Metrics& metrics = get_metrics();
  metrics.futures_created.add(1, {{"operation_type", "forward_backward"}});
  metrics.futures_execution_time.record(0.123, {{"operation_type", "forward_backward"}});

  // Where every nanosecond counts: find the series once.
  static const BoundCounter created = metrics.futures_created.with({{"operation_type", "sample"}});
  for (int i = 0; i < 3; ++i) created.add(1);
}

}  // namespace

// ---- choosing attributes
// Spans and logs: stable identifiers (tuft.session_id, tuft.training_run_id, tuft.sampling_session_id,
// tuft.request_id). Metrics: labels from small closed sets only (base_model, operation_type, queue_state); never an
// identifier. Nowhere: prompts, tokens, keys, raw payloads.

int main(int argc, char** argv) {
  TelemetryConfig config{.enabled = true, .service_name = "telemetry-guide"};
  config.resource_attributes = {{"deployment.environment", "demo"}};
  config.protocol = argc > 1 ? Protocol::kFile : Protocol::kConsole;
  if (argc > 1) config.file_path = argv[1];
  if (const tuft::Status status = init_telemetry(config); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    return 1;
  }
  my_operation("session-1", "run-1");
  count_work();
  // Delivers what is recorded, the last metrics included, within the budget.
  shutdown_telemetry(5 * tuft::kSecond);
  flush_logging();
  return 0;
}
