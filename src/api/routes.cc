#include "api/handlers.h"
#include "api/router.h"
#include "openai/service.h"

namespace tuft::api {
namespace {

constexpr int64_t kTelemetryBytesMax = 4 << 20;

constexpr Route kRoutes[] = {
    // service
    {.method = Method::kGet,
     .pattern = "/api/v1/healthz",
     .handler = handle_healthz,
     .access = Access::kOpen,
     .tracing = Tracing::kNever},
    {.method = Method::kGet, .pattern = "/api/v1/get_server_capabilities", .handler = handle_server_capabilities},
    {.method = Method::kPost, .pattern = "/api/v1/client/config", .handler = handle_client_config},
    {.method = Method::kPost, .pattern = "/api/v1/client/dynamic_config", .handler = handle_dynamic_config},
    {.method = Method::kPost,
     .pattern = "/api/v1/telemetry",
     .handler = handle_telemetry,
     .tracing = Tracing::kNever,
     .body_bytes_max = kTelemetryBytesMax},
    {.method = Method::kGet,
     .pattern = "/metrics",
     .handler = handle_metrics,
     .access = Access::kMetrics,
     .tracing = Tracing::kNever},
    {.method = Method::kGet, .pattern = "/openapi.json", .handler = handle_openapi, .access = Access::kOpen},
    {.method = Method::kGet, .pattern = "/docs", .handler = handle_docs, .access = Access::kOpen},
    // sessions
    {.method = Method::kPost, .pattern = "/api/v1/create_session", .handler = handle_create_session, .promises = true},
    {.method = Method::kPost, .pattern = "/api/v1/session_heartbeat", .handler = handle_session_heartbeat},
    {.method = Method::kPost, .pattern = "/api/v1/auth/token", .handler = handle_auth_token},
    {.method = Method::kGet, .pattern = "/api/v1/sessions", .handler = handle_list_sessions},
    {.method = Method::kGet, .pattern = "/api/v1/sessions/{session_id}", .handler = handle_get_session},
    {.method = Method::kPut,
     .pattern = "/api/v1/sessions/{session_id}/project",
     .handler = handle_set_project,
     .promises = true},
    // training runs and checkpoints
    {.method = Method::kPost,
     .pattern = "/api/v1/sessions/{session_id}/finish",
     .handler = handle_finish_session,
     .promises = true},
    {.method = Method::kGet, .pattern = "/api/v1/training_runs", .handler = handle_list_training_runs},
    {.method = Method::kGet, .pattern = "/api/v1/training_runs/{run_id}", .handler = handle_get_training_run},
    {.method = Method::kGet,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints",
     .handler = handle_list_run_checkpoints},
    {.method = Method::kGet, .pattern = "/api/v1/checkpoints", .handler = handle_list_checkpoints},
    // Waits for the store by itself, so that it knows whether the client was told that it was done.
    {.method = Method::kDelete,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}",
     .handler = handle_delete_checkpoint},
    {.method = Method::kPost,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish",
     .handler = handle_publish_checkpoint,
     .promises = true},
    {.method = Method::kDelete,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/publish",
     .handler = handle_unpublish_checkpoint,
     .promises = true},
    {.method = Method::kPut,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/ttl",
     .handler = handle_set_checkpoint_ttl,
     .promises = true},
    {.method = Method::kGet,
     .pattern = "/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}/archive",
     .handler = handle_checkpoint_archive},
    {.method = Method::kGet,
     .pattern = "/api/v1/archives",
     .handler = handle_download_archive,
     .access = Access::kOpen},
    // training
    {.method = Method::kPost, .pattern = "/api/v1/create_model", .handler = handle_create_model, .promises = true},
    {.method = Method::kPost, .pattern = "/api/v1/get_info", .handler = handle_get_info},
    {.method = Method::kPost, .pattern = "/api/v1/weights_info", .handler = handle_weights_info},
    {.method = Method::kPost, .pattern = "/api/v1/unload_model", .handler = handle_unload_model, .promises = true},
    {.method = Method::kPost, .pattern = "/api/v1/forward", .handler = handle_forward, .promises = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/forward_backward",
     .handler = handle_forward_backward,
     .accepts = Accepts::kJsonOrProtobuf,
     .promises = true},
    {.method = Method::kPost, .pattern = "/api/v1/optim_step", .handler = handle_optim_step, .promises = true},
    {.method = Method::kPost, .pattern = "/api/v1/save_weights", .handler = handle_save_weights, .promises = true},
    {.method = Method::kPost,
     .pattern = "/api/v1/save_weights_for_sampler",
     .handler = handle_save_weights_for_sampler,
     .promises = true},
    {.method = Method::kPost, .pattern = "/api/v1/load_weights", .handler = handle_load_weights, .promises = true},
    // sampling
    {.method = Method::kPost,
     .pattern = "/api/v1/create_sampling_session",
     .handler = handle_create_sampling_session,
     .promises = true},
    {.method = Method::kGet, .pattern = "/api/v1/samplers/{sampler_id}", .handler = handle_get_sampler},
    {.method = Method::kPost, .pattern = "/api/v1/join_sampling_session", .handler = handle_join_sampling_session},
    {.method = Method::kPost, .pattern = "/api/v1/asample", .handler = handle_asample, .promises = true},
    // usage
    {.method = Method::kGet, .pattern = "/api/v1/audit", .handler = handle_audit},
    {.method = Method::kGet, .pattern = "/api/v1/billing/usage/events", .handler = handle_billing_usage},
    {.method = Method::kGet, .pattern = "/api/v1/sessions/{session_id}/trace_export", .handler = handle_trace_export},
    {.method = Method::kGet, .pattern = "/api/v1/trace_exports", .handler = handle_trace_file, .access = Access::kOpen},
    // futures
    {.method = Method::kPost,
     .pattern = "/api/v1/retrieve_future",
     .handler = handle_retrieve_future,
     .tracing = Tracing::kWhenDelivered},
    {.method = Method::kPost, .pattern = "/api/v1/cancel_future", .handler = handle_cancel_future, .promises = true},
    // what OpenAI's clients call
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
     .errors = ErrorShape::kOpenAi},
    {.method = Method::kGet,
     .pattern = "/oai/api/v1/models/{model...}",
     .handler = handle_oai_model,
     .access = Access::kBearer,
     .errors = ErrorShape::kOpenAi},
};

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

}  // namespace tuft::api
