// The instruments of the product: names, units, buckets. Names and units of TuFT's metrics (units "", "bytes",
// "tokens/s" and "tokens" among them) stay as its dashboards know them; ours use UCUM.
#include "telemetry/metrics.h"

namespace tuft::telemetry {
namespace {

constexpr auto kUp = Counter::Direction::kUp;
constexpr auto kUpAndDown = Counter::Direction::kUpAndDown;
constexpr std::string_view kResources = "tuft.resources";

}  // namespace

std::vector<double> bounds_http() {
  return {.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 45};
}

std::vector<double> bounds_wait() {
  return {.0001, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800};
}

std::vector<double> bounds_request() {
  return {.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 240, 480, 960, 1920, 7680};
}

std::vector<double> bounds_step() {
  return {.0005, .001, .002, .004, .006, .008, .01, .015, .02, .03, .05, .08, .12, .2, .5, 1, 2, 5};
}

std::vector<double> bounds_operation() {
  return {.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10};
}

std::vector<double> bounds_tokens() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
}

std::vector<double> bounds_bytes() {
  std::vector<double> bounds;
  for (double bound = 64.0 * 1024; bound <= 64.0 * 1024 * 1024 * 1024; bound *= 4) bounds.push_back(bound);
  return bounds;
}

std::vector<double> bounds_tokens_per_second() {
  return {1, 10, 50, 100, 250, 500, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6};
}

std::vector<double> bounds_fraction() {
  return {.01, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, 1};
}

std::vector<double> bounds_count() {
  return {1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000};
}

std::vector<double> bounds_norm() {
  return {.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100, 1000};
}

std::vector<double> bounds_first_token() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
}

std::vector<double> bounds_loss() {
  return {.01, .03, .1, .3, .5, 1, 2, 3, 5, 10, 30, 100};
}

Metrics::Metrics()
    : http_server_request_duration({.name = "http.server.request.duration",
                                    .unit = "s",
                                    .description = "Time from the request's first byte to the response's last",
                                    .bounds = bounds_http()}),
      http_server_active_requests(
          {.name = "http.server.active_requests", .unit = "{request}", .description = "Requests being answered"},
          kUpAndDown),
      http_rejected(
          {.name = "tuft.http.rejected", .unit = "{request}", .description = "Requests refused at the edge, by reason"},
          kUp),

      training_models_active(
          {.name = "tuft.training.models.active", .unit = "", .description = "Adapters that are being trained"},
          kUpAndDown),
      training_tokens_per_second({.name = "tuft.training.tokens_per_second",
                                  .unit = "tokens/s",
                                  .description = "Input tokens of a forward or forward_backward over its whole time",
                                  .bounds = bounds_tokens_per_second()}),
      training_checkpoints_saved(
          {.name = "tuft.training.checkpoints.saved", .unit = "", .description = "Checkpoints saved"}, kUp),
      training_checkpoint_size_bytes({.name = "tuft.training.checkpoint.size_bytes",
                                      .unit = "bytes",
                                      .description = "Size of a saved checkpoint",
                                      .bounds = bounds_bytes()}),
      training_tokens({.name = "tuft.training.tokens",
                       .unit = "{token}",
                       .description = "Tokens that went through training passes"},
                      kUp),
      training_step_duration({.name = "tuft.training.step.duration",
                              .unit = "s",
                              .description = "Phases of a training step",
                              .bounds = bounds_request()}),
      training_grad_norm({.name = "tuft.training.grad_norm",
                          .unit = "1",
                          .description = "Norm of the gradient before clipping",
                          .bounds = bounds_norm()}),
      training_loss({.name = "tuft.training.loss",
                     .unit = "1",
                     .description = "Mean loss of a forward_backward per weighted token",
                     .bounds = bounds_loss()}),
      training_optim_steps(
          {.name = "tuft.training.optim_steps", .unit = "{step}", .description = "Optimizer steps taken"}, kUp),
      training_nonfinite({.name = "tuft.training.nonfinite",
                          .unit = "{event}",
                          .description = "Losses, gradients or updates that were not finite"},
                         kUp),
      checkpoint_duration({.name = "tuft.checkpoint.duration",
                           .unit = "s",
                           .description = "Saving or loading a checkpoint",
                           .bounds = bounds_request()}),

      sampling_sessions_active(
          {.name = "tuft.sampling.sessions.active", .unit = "", .description = "Sampling sessions that exist"},
          kUpAndDown),
      sampling_requests(
          {.name = "tuft.sampling.requests", .unit = "", .description = "Sampling requests that succeeded"}, kUp),
      sampling_duration({.name = "tuft.sampling.duration",
                         .unit = "s",
                         .description = "A sampling request from its start to its last token",
                         .bounds = bounds_request()}),
      sampling_tokens_per_second({.name = "tuft.sampling.tokens_per_second",
                                  .unit = "tokens/s",
                                  .description = "Output tokens of a sampling request over its whole time",
                                  .bounds = bounds_tokens_per_second()}),
      sampling_output_tokens({.name = "tuft.sampling.output_tokens",
                              .unit = "tokens",
                              .description = "Output tokens of a sequence",
                              .bounds = bounds_tokens()}),
      sampling_tokens({.name = "tuft.sampling.tokens",
                       .unit = "{token}",
                       .description = "Tokens that went through sampling steps, by kind (prefill, decode)"},
                      kUp),
      sampling_finished({.name = "tuft.sampling.finished",
                         .unit = "{sequence}",
                         .description = "Sequences that ended, by reason (stop, length, error, cancelled)"},
                        kUp),
      time_to_first_token({.name = "gen_ai.server.time_to_first_token",
                           .unit = "s",
                           .description = "A sampling request from its start to its first token",
                           .bounds = bounds_first_token()}),

      futures_queue_length({.name = "tuft.futures.queue_length",
                            .unit = "",
                            .description = "Operations waiting or running, by queue state"},
                           kUpAndDown),
      futures_created({.name = "tuft.futures.created", .unit = "", .description = "Operations accepted"}, kUp),
      futures_completed(
          {.name = "tuft.futures.completed", .unit = "", .description = "Operations ended (ready, failed)"}, kUp),
      futures_wait_time({.name = "tuft.futures.wait_time",
                         .unit = "s",
                         .description = "An operation from its acceptance to its execution",
                         .bounds = bounds_wait()}),
      futures_execution_time({.name = "tuft.futures.execution_time",
                              .unit = "s",
                              .description = "Execution of an operation",
                              .bounds = bounds_request()}),
      futures_evicted({.name = "tuft.futures.evicted",
                       .unit = "{future}",
                       .description = "Results dropped before a client fetched them, by reason"},
                      kUp),

      sessions_active({.name = "tuft.sessions.active", .unit = "{session}", .description = "Client sessions alive"},
                      kUpAndDown),
      sequence_guard_out_of_order({.name = "tuft.sequence_guard.out_of_order",
                                   .unit = "{operation}",
                                   .description = "Operations that arrived before one with a lower seq_id"},
                                  kUp),
      sequence_guard_wait_duration({.name = "tuft.sequence_guard.wait.duration",
                                    .unit = "s",
                                    .description = "Time an operation waited for its turn in its run",
                                    .bounds = bounds_wait()}),
      client_events({.name = "tuft.client.events",
                     .unit = "{event}",
                     .description = "Events that SDK clients reported, by name (a known one, or other) and severity"},
                    kUp),

      worker_restarts({.name = "tuft.worker.restarts", .unit = "{restart}", .description = "Model actors restarted"},
                      kUp),
      worker_rpc_duration({.name = "tuft.worker.rpc.duration",
                           .unit = "s",
                           .description = "Calls to model actors, by method and status",
                           .bounds = bounds_request()}),
      scheduler_step_duration({.name = "tuft.scheduler.step.duration",
                               .unit = "s",
                               .description = "One step of the engine, by phase (train, prefill, decode, mixed)",
                               .bounds = bounds_step()}),
      scheduler_batch_tokens({.name = "tuft.scheduler.batch.tokens",
                              .unit = "{token}",
                              .description = "Tokens in one step of the engine",
                              .bounds = bounds_tokens()}),
      scheduler_requests({.name = "tuft.scheduler.requests",
                          .unit = "{request}",
                          .description = "Requests in the engine, by state (running, waiting)"}),
      lora_adapters({.name = "tuft.lora.adapters",
                     .unit = "{adapter}",
                     .description = "Adapters in the engine, by kind (training, sampler)"}),

      cpu_utilization_percent({.name = "tuft.resource.cpu.utilization_percent",
                               .unit = "%",
                               .description = "Busy share of the machine's processors since the last collection",
                               .scope = kResources}),
      memory_used_bytes({.name = "tuft.resource.memory.used_bytes",
                         .unit = "bytes",
                         .description = "Memory used on the machine, or in the container where it has a limit",
                         .scope = kResources}),
      memory_total_bytes({.name = "tuft.resource.memory.total_bytes",
                          .unit = "bytes",
                          .description = "Memory of the machine, or the container's limit",
                          .scope = kResources}),
      memory_utilization_percent({.name = "tuft.resource.memory.utilization_percent",
                                  .unit = "%",
                                  .description = "Used share of the memory",
                                  .scope = kResources}),
      gpu_utilization_percent({.name = "tuft.resource.gpu.utilization_percent",
                               .unit = "%",
                               .description = "Busy share of a GPU, by gpu_id",
                               .scope = kResources}),
      gpu_memory_used_bytes({.name = "tuft.resource.gpu.memory_used_bytes",
                             .unit = "bytes",
                             .description = "Memory used on a GPU, by gpu_id",
                             .scope = kResources}),
      gpu_memory_total_bytes({.name = "tuft.resource.gpu.memory_total_bytes",
                              .unit = "bytes",
                              .description = "Memory of a GPU, by gpu_id",
                              .scope = kResources}),
      process_memory_used_bytes({.name = "tuft.resource.process.memory_used_bytes",
                                 .unit = "bytes",
                                 .description = "Resident memory of this process",
                                 .scope = kResources}),

      telemetry_dropped({.name = "tuft.telemetry.dropped",
                         .unit = "{record}",
                         .description = "Spans, log records and log lines lost before export, by signal and reason"},
                        kUp),
      telemetry_exported({.name = "tuft.telemetry.exported",
                          .unit = "{record}",
                          .description = "Spans, log records and metric points given to the exporter, by outcome"},
                         kUp),
      telemetry_nonfinite({.name = "tuft.telemetry.nonfinite",
                           .unit = "{value}",
                           .description = "Values refused because they were not finite, by instrument"},
                          kUp),
      telemetry_series_overflowed({.name = "tuft.telemetry.series.overflowed",
                                   .unit = "{record}",
                                   .description = "Look-ups that found an instrument's label sets full, by instrument"},
                                  kUp),
      telemetry_context_malformed({.name = "tuft.telemetry.context.malformed",
                                   .unit = "{header}",
                                   .description = "traceparent headers that could not be read"},
                                  kUp) {}

Metrics& get_metrics() {
  static Metrics& metrics = *new Metrics;
  return metrics;
}

}  // namespace tuft::telemetry
