#include "api/handlers/handlers.h"
#include "api/routing/router.h"
#include "control/observe/intake.h"
#include "openai/service.h"

namespace tuft::api {
namespace {

constexpr int64_t kTelemetryBytesMax = 4 << 20;
constexpr int64_t kPollBytesMax = 4 << 20;  // some 90,000 ids of futures

constexpr Route observe(std::string_view pattern, Handler handler) {
  return {.method = Method::kGet,
          .pattern = pattern,
          .handler = handler,
          .access = Access::kBearer,
          .tracing = Tracing::kNever,
          .threads = Threads::kQuery};
}

// A question of a chart.
constexpr Route observe_chart(std::string_view pattern, Handler handler) {
  Route route = observe(pattern, handler);
  route.is_shared = true;
  return route;
}

constexpr Route console_page(std::string_view pattern, Handler handler) {
  return {.method = Method::kGet,
          .pattern = pattern,
          .handler = handler,
          .access = Access::kOpen,
          .tracing = Tracing::kNever,
          .of_console = true};
}

constexpr Route console_post(std::string_view pattern, Handler handler) {
  Route route = console_page(pattern, handler);
  route.method = Method::kPost;
  return route;
}

constexpr Route kRoutes[] = {
    // service
    {.method = Method::kGet,
     .pattern = "/api/v1/healthz",
     .handler = handle_healthz,
     .reads = true,
     .access = Access::kOpen,
     .tracing = Tracing::kNever},
    {.method = Method::kGet,
     .pattern = "/api/v1/get_server_capabilities",
     .handler = handle_server_capabilities,
     .reads = true},
    {.method = Method::kPost, .pattern = "/api/v1/client/config", .handler = handle_client_config, .reads = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/client/dynamic_config",
     .handler = handle_dynamic_config,
     .reads = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/telemetry",
     .handler = handle_telemetry,
     .tracing = Tracing::kNever,
     .body_bytes_max = kTelemetryBytesMax},
    {.method = Method::kGet,
     .pattern = "/metrics",
     .handler = handle_metrics,
     .reads = true,
     .access = Access::kMetrics,
     .tracing = Tracing::kNever},
    {.method = Method::kGet,
     .pattern = "/openapi.json",
     .handler = handle_openapi,
     .reads = true,
     .access = Access::kOpen,
     .tracing = Tracing::kNever},
    {.method = Method::kGet,
     .pattern = "/docs",
     .handler = handle_docs,
     .reads = true,
     .access = Access::kOpen,
     .tracing = Tracing::kNever},
    // sessions
    {.method = Method::kPost,
     .pattern = "/api/v1/create_session",
     .handler = handle_create_session,
     .threads = Threads::kWork,
     .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/session_heartbeat",
     .handler = handle_session_heartbeat,
     .tracing = Tracing::kSome},
    {.method = Method::kPost, .pattern = "/api/v1/auth/token", .handler = handle_auth_token},
    {.method = Method::kGet, .pattern = "/api/v1/auth/apikey/me", .handler = handle_own_key, .reads = true},
    {.method = Method::kDelete, .pattern = "/api/v1/auth/apikey/me", .handler = handle_delete_own_key},
    {.method = Method::kGet,
     .pattern = "/api/v1/sessions",
     .handler = handle_list_sessions,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kPost,
     .pattern = "/api/v1/sessions/search",
     .handler = handle_search_sessions,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kGet,
     .pattern = "/api/v1/sessions/{session_id}",
     .handler = handle_get_session,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kPut,
     .pattern = "/api/v1/sessions/{session_id}/project",
     .handler = handle_set_project,
     .threads = Threads::kWork,
     .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/sessions/{session_id}/finish",
     .handler = handle_finish_session,
     .threads = Threads::kWork,
     .durable = true},
    // training runs and checkpoints
    {.method = Method::kGet,
     .pattern = "/api/v1/training_runs",
     .handler = handle_list_training_runs,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kGet,
     .pattern = "/api/v1/training_runs/{run_id}",
     .handler = handle_get_training_run,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kGet,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints",
     .handler = handle_list_run_checkpoints,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kGet,
     .pattern = "/api/v1/checkpoints",
     .handler = handle_list_checkpoints,
     .reads = true,
     .threads = Threads::kWork},
    // Not `durable`: the handler itself waits for the store, because it must know whether the client got the answer.
    {.method = Method::kDelete,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}",
     .handler = handle_delete_checkpoint},
    {.method = Method::kPost,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish",
     .handler = handle_make_checkpoint_public,
     .durable = true},
    {.method = Method::kDelete,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish",
     .handler = handle_make_checkpoint_private,
     .durable = true},
    {.method = Method::kPut,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/ttl",
     .handler = handle_set_checkpoint_ttl,
     .durable = true},
    {.method = Method::kPost, .pattern = "/api/v1/copy_weights", .handler = handle_copy_weights, .durable = true},
    {.method = Method::kGet,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/archive",
     .handler = handle_checkpoint_archive},
    {.method = Method::kGet,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls",
     .handler = handle_external_weights_urls},
    {.method = Method::kGet,
     .pattern = "/api/v1/archives",
     .handler = handle_download_archive,
     .access = Access::kOpen,
     .tracing = Tracing::kWhenDelivered},
    // training
    {.method = Method::kPost,
     .pattern = "/api/v1/create_model",
     .handler = handle_create_model,
     .threads = Threads::kWork,
     .durable = true},
    {.method = Method::kPost, .pattern = "/api/v1/get_info", .handler = handle_get_info, .reads = true},
    {.method = Method::kPost, .pattern = "/api/v1/weights_info", .handler = handle_weights_info, .reads = true},
    {.method = Method::kPost, .pattern = "/api/v1/unload_model", .handler = handle_unload_model, .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/forward",
     .handler = handle_forward,
     .body_bytes_max = kLargeBody,
     .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/forward_backward",
     .handler = handle_forward_backward,
     .accepts = Accepts::kJsonOrProtobuf,
     .body_bytes_max = kLargeBody,
     .durable = true},
    {.method = Method::kPost, .pattern = "/api/v1/optim_step", .handler = handle_optim_step, .durable = true},
    {.method = Method::kPost, .pattern = "/api/v1/save_weights", .handler = handle_save_weights, .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/save_weights_for_sampler",
     .handler = handle_save_weights_for_sampler,
     .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/save_weights_external",
     .handler = handle_save_weights_external,
     .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/load_weights",
     .handler = handle_load_weights,
     .threads = Threads::kWork,
     .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/create_custom_loss",
     .handler = handle_create_custom_loss,
     .threads = Threads::kWork,
     .durable = true},
    // sampling
    {.method = Method::kPost,
     .pattern = "/api/v1/create_sampling_session",
     .handler = handle_create_sampling_session,
     .threads = Threads::kWork,
     .durable = true},
    {.method = Method::kGet, .pattern = "/api/v1/samplers/{sampler_id}", .handler = handle_get_sampler, .reads = true},
    {.method = Method::kPost, .pattern = "/api/v1/join_sampling_session", .handler = handle_join_sampling_session},
    {.method = Method::kPost,
     .pattern = "/api/v1/asample",
     .handler = handle_asample,
     .body_bytes_max = kLargeBody,
     .durable = true},
    // usage
    {.method = Method::kGet,
     .pattern = "/api/v1/audit",
     .handler = handle_audit,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kGet,
     .pattern = "/api/v1/billing/usage/events",
     .handler = handle_billing_usage,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kGet,
     .pattern = "/api/v1/billing/usage/checkpoints/current",
     .handler = handle_stored_checkpoints,
     .reads = true,
     .threads = Threads::kWork},
    {.method = Method::kGet, .pattern = "/api/v1/sessions/{session_id}/trace_export", .handler = handle_trace_export},
    {.method = Method::kGet,
     .pattern = "/api/v1/trace_exports",
     .handler = handle_trace_file,
     .access = Access::kOpen,
     .tracing = Tracing::kWhenDelivered},
    // futures
    {.method = Method::kPost,
     .pattern = "/api/v1/retrieve_future",
     .handler = handle_retrieve_future,
     .reads = true,
     .tracing = Tracing::kWhenDelivered},
    {.method = Method::kPost, .pattern = "/api/v1/cancel_future", .handler = handle_cancel_future, .durable = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/retrieve_futures",
     .handler = handle_retrieve_futures,
     .tracing = Tracing::kNever,
     .body_bytes_max = kPollBytesMax},
    // What the console, terminals and assistants see. They have no spans: who looks at the telemetry does not add to
    // it.
    observe("/api/v1/observe/whoami", handle_observe_whoami),
    observe("/api/v1/observe/overview", handle_observe_overview),
    observe("/api/v1/observe/traces", handle_observe_traces),
    observe_chart("/api/v1/observe/traces/histogram", handle_observe_histogram),
    observe_chart("/api/v1/observe/traces/series", handle_observe_series),
    observe("/api/v1/observe/traces/{trace_id}", handle_observe_trace),
    observe("/api/v1/observe/traces/{trace_id}/perfetto", handle_observe_perfetto),
    observe("/api/v1/observe/logs", handle_observe_logs),
    observe("/api/v1/observe/metrics", handle_observe_metrics),
    observe_chart("/api/v1/observe/metrics/query", handle_observe_metric),
    observe("/api/v1/observe/metrics/exemplars", handle_observe_exemplars),
    observe("/api/v1/observe/runs", handle_observe_runs),
    observe("/api/v1/observe/runs/{run_id}", handle_observe_run),
    observe("/api/v1/observe/runs/{run_id}/steps", handle_observe_steps),
    observe("/api/v1/observe/samplers", handle_observe_samplers),
    observe("/api/v1/observe/sessions", handle_observe_sessions),
    observe("/api/v1/observe/tenants", handle_observe_tenants),
    observe("/api/v1/observe/workers", handle_observe_workers),
    observe("/api/v1/observe/system", handle_observe_system),
    observe("/api/v1/observe/bundle", handle_observe_bundle),
    // The same for assistants. Not traced either.
    {.method = Method::kPost,
     .pattern = "/mcp",
     .handler = handle_mcp,
     .access = Access::kBearer,
     .tracing = Tracing::kNever,
     .threads = Threads::kQuery},
    // The web console. Some paths of its pages are those of its POST requests, too.
    console_page("/", handle_root),
    console_page("/console", handle_console_file),
    console_page("/console/", handle_console_file),
    console_page("/console/login", handle_console_file),
    console_page("/console/logout", handle_console_file),
    console_page("/console/{path...}", handle_console_file),
    console_post("/console/login", handle_console_login),
    console_post("/console/logout", handle_console_logout),
    // OpenAI-compatible
    {.method = Method::kPost,
     .pattern = "/oai/api/v1/completions",
     .handler = handle_oai_completions,
     .access = Access::kBearer,
     .body_bytes_max = openai::kBodyBytesMax,
     .errors = ErrorShape::kOpenAi},
    {.method = Method::kPost,
     .pattern = "/oai/api/v1/chat/completions",
     .handler = handle_oai_chat_completions,
     .access = Access::kBearer,
     .body_bytes_max = openai::kBodyBytesMax,
     .errors = ErrorShape::kOpenAi},
    {.method = Method::kGet,
     .pattern = "/oai/api/v1/models",
     .handler = handle_oai_models,
     .access = Access::kBearer,
     .threads = Threads::kWork,
     .errors = ErrorShape::kOpenAi},
    {.method = Method::kGet,
     .pattern = "/oai/api/v1/models/{model...}",
     .handler = handle_oai_model,
     .access = Access::kBearer,
     .errors = ErrorShape::kOpenAi},
};

// Senders retry what was not taken. Their requests have no spans: the spans of a user's program would make spans of the
// server, without end.
constexpr Route otlp_route(std::string_view pattern, Handler handler, control::IntakeSignal signal) {
  return {.method = Method::kPost,
          .pattern = pattern,
          .handler = handler,
          .access = Access::kBearer,
          .tracing = Tracing::kNever,
          .accepts = Accepts::kOtlp,
          .body_bytes_max = control::kIntakeBytesMax,
          .intake = signal};
}

constexpr Route kIntakeRoutes[] = {
    otlp_route("/v1/traces", handle_otlp_traces, control::IntakeSignal::kTraces),
    otlp_route("/v1/logs", handle_otlp_logs, control::IntakeSignal::kLogs),
    otlp_route("/v1/metrics", handle_otlp_metrics, control::IntakeSignal::kMetrics),
};

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

std::span<const Route> intake_routes() {
  return kIntakeRoutes;
}

const Route& unknown_operation_route() {
  static constexpr Route kRoute = {
      .method = Method::kPost, .pattern = "/api/v1/{unknown}", .handler = handle_unknown_operation, .durable = true};
  return kRoute;
}

}  // namespace tuft::api
