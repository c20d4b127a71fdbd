// The developer guide as code: how to record spans, metrics and logs. The tests build and run it.
//
//   telemetry_guide [FILE]      writes OTLP JSON lines to FILE, else prints to the console
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tuft/telemetry/context.h"
#include "tuft/telemetry/instrument.h"
#include "tuft/telemetry/log.h"
#include "tuft/telemetry/telemetry.h"
#include "tuft/telemetry/trace.h"
#include "tuft/telemetry/traced.h"

using namespace tuft::telemetry;

namespace {

// ---- creating spans

tuft::Status load_weights(const std::string& base_model) {
  // This line traces a function: the span "load_weights" becomes a child of the current span.
  TUFT_TRACED_FUNCTION({"tuft.base_model", base_model});
  // An error that is returned through it sets the span's status and adds an exception event.
  if (base_model.empty()) return traced_function.returns(tuft::Status(tuft::invalid_argument("no base model")));
  return {};
}

void my_operation(const std::string& session_id, const std::string& training_run_id) {
  // Cheap to copy; use one per module.
  static const Tracer tracer = get_tracer("tuft.my_module");

  Span span = tracer.start_span("my_operation");
  span.set_attribute("tuft.session_id", session_id);
  span.set_attribute("tuft.training_run_id", training_run_id);

  // From here to the end of the scope, spans and logs of this thread are below it.
  const ContextScope scope(span.context());

  if (load_weights("Qwen/Qwen3-0.6B").ok()) span.add_event("weights_loaded", {{"layers", 28}});
  const tuft::Status status = load_weights("");

  // Another thread: pass the context on and make it current there.
  std::thread([parent = span.context()] {
    const ContextScope here(parent);
    const Span step = tracer.start_span("my_step");
    // Another process: pass the context as a W3C header.
    inject(step.context(), [](std::string_view key, const std::string& value) {
      std::printf("%s: %s\n", std::string(key).c_str(), value.c_str());
    });
  }).join();

  // ---- logs: a stable event name; variable data goes into attributes; the ids of the current span are added
  log_info("my_module.done", "my operation is done", {{"tuft.session_id", session_id}});
  if (!status.ok()) log_warning("my_module.failed", status.error().message);
}

// ---- recording metrics

// The metrics of a module: one member each, in a struct that is made once.
struct MyMetrics {
  Counter created{{.name = "tuft.futures.created",
                   .unit = "{operation}",
                   .description = "Operations accepted",
                   .labels = {"operation_type"}}};
  Histogram execution_time{{.name = "tuft.futures.execution_time",
                            .unit = "s",
                            .description = "An operation from its start to its end",
                            .labels = {"operation_type"},
                            .bounds = {.01, .1, 1, 10, 60}}};
};

const MyMetrics& my_metrics() {
  static const MyMetrics metrics;
  return metrics;
}

void count_work() {
  my_metrics().created.add(1, {{"operation_type", "forward_backward"}});
  my_metrics().execution_time.record(0.123, {{"operation_type", "forward_backward"}});

  // On a hot path, bind the series once.
  static const BoundCounter created = my_metrics().created.with({{"operation_type", "sample"}});
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
  // Exports what was recorded, including the last metrics, within the budget.
  shutdown_telemetry(5 * tuft::kSecond);
  flush_logging();
  return 0;
}
