// The handlers of all endpoints, by the file that defines them.
//
// The room handlers/ promises: a handler checks all its fields, calls the control plane, and writes the answer, without
// blocking the I/O thread.
#pragma once

#include <string>
#include <string_view>

#include "api/exchange.h"

namespace tuft::api {

// service.cc
Result<Answer> handle_healthz(Exchange& exchange);
Result<Answer> handle_server_capabilities(Exchange& exchange);
Result<Answer> handle_client_config(Exchange& exchange);
Result<Answer> handle_dynamic_config(Exchange& exchange);
Result<Answer> handle_telemetry(Exchange& exchange);
Result<Answer> handle_metrics(Exchange& exchange);

// docs/openapi.cc
Result<Answer> handle_openapi(Exchange& exchange);
Result<Answer> handle_docs(Exchange& exchange);

// session.cc
Result<Answer> handle_create_session(Exchange& exchange);
Result<Answer> handle_session_heartbeat(Exchange& exchange);
Result<Answer> handle_auth_token(Exchange& exchange);
Result<Answer> handle_own_key(Exchange& exchange);
Result<Answer> handle_delete_own_key(Exchange& exchange);

// session_search.cc
Result<Answer> handle_search_sessions(Exchange& exchange);

// catalog.cc
Result<Answer> handle_list_sessions(Exchange& exchange);
Result<Answer> handle_get_session(Exchange& exchange);
Result<Answer> handle_set_project(Exchange& exchange);
Result<Answer> handle_finish_session(Exchange& exchange);
Result<Answer> handle_list_training_runs(Exchange& exchange);
Result<Answer> handle_get_training_run(Exchange& exchange);
Result<Answer> handle_list_run_checkpoints(Exchange& exchange);
Result<Answer> handle_list_checkpoints(Exchange& exchange);

// checkpoints.cc
Result<Answer> handle_delete_checkpoint(Exchange& exchange);
Result<Answer> handle_make_checkpoint_public(Exchange& exchange);
Result<Answer> handle_make_checkpoint_private(Exchange& exchange);
Result<Answer> handle_set_checkpoint_ttl(Exchange& exchange);
Result<Answer> handle_copy_weights(Exchange& exchange);
Result<Answer> handle_external_weights_urls(Exchange& exchange);
Result<Answer> handle_checkpoint_archive(Exchange& exchange);
Result<Answer> handle_download_archive(Exchange& exchange);

// training.cc
Result<Answer> handle_create_model(Exchange& exchange);
Result<Answer> handle_get_info(Exchange& exchange);
Result<Answer> handle_weights_info(Exchange& exchange);
Result<Answer> handle_unload_model(Exchange& exchange);
Result<Answer> handle_forward(Exchange& exchange);
Result<Answer> handle_forward_backward(Exchange& exchange);
Result<Answer> handle_optim_step(Exchange& exchange);
Result<Answer> handle_save_weights(Exchange& exchange);
Result<Answer> handle_save_weights_for_sampler(Exchange& exchange);
Result<Answer> handle_save_weights_external(Exchange& exchange);
Result<Answer> handle_load_weights(Exchange& exchange);
// Answers unknown_operation_route() with 404. If the body names a run and a seq_id, uses the number up first, so that
// the run's next operation does not wait for it.
Result<Answer> handle_unknown_operation(Exchange& exchange);
Result<Answer> handle_create_custom_loss(Exchange& exchange);

// sampling.cc
Result<Answer> handle_create_sampling_session(Exchange& exchange);
Result<Answer> handle_get_sampler(Exchange& exchange);
Result<Answer> handle_join_sampling_session(Exchange& exchange);
Result<Answer> handle_asample(Exchange& exchange);

// usage.cc
Result<Answer> handle_audit(Exchange& exchange);
Result<Answer> handle_billing_usage(Exchange& exchange);
Result<Answer> handle_stored_checkpoints(Exchange& exchange);
Result<Answer> handle_trace_export(Exchange& exchange);
Result<Answer> handle_trace_file(Exchange& exchange);

// otlp.cc: the routes of the intake
Result<Answer> handle_otlp_traces(Exchange& exchange);
Result<Answer> handle_otlp_logs(Exchange& exchange);
Result<Answer> handle_otlp_metrics(Exchange& exchange);

// futures.cc
Result<Answer> handle_retrieve_future(Exchange& exchange);
Result<Answer> handle_cancel_future(Exchange& exchange);
Result<Answer> handle_retrieve_futures(Exchange& exchange);
// Returns the answer to a poll that timed out: 408 with the state of the queue.
Response try_again_response(const control::FutureSnapshot& snapshot);
Response try_again_response(const control::RequestId& request);
// Answers {"request_id", "model_id"}, or the error of the submission. Calls note_submission().
Result<Answer> submitted(Exchange& exchange, const Result<control::Submitted>& submission);
// Sets the ids of a submission as attributes of the span.
void note_submission(Exchange& exchange, const control::Submitted& submission);

// observe.cc
Result<Answer> handle_observe_whoami(Exchange& exchange);
Result<Answer> handle_observe_traces(Exchange& exchange);
Result<Answer> handle_observe_histogram(Exchange& exchange);
Result<Answer> handle_observe_series(Exchange& exchange);
Result<Answer> handle_observe_trace(Exchange& exchange);
Result<Answer> handle_observe_perfetto(Exchange& exchange);
Result<Answer> handle_observe_logs(Exchange& exchange);
Result<Answer> handle_observe_metrics(Exchange& exchange);
Result<Answer> handle_observe_metric(Exchange& exchange);
Result<Answer> handle_observe_exemplars(Exchange& exchange);
Result<Answer> handle_observe_steps(Exchange& exchange);
// Returns what the console shows of who is logged in.
std::string whoami_json(const Exchange& exchange, const control::UserId& user);

// observe_things.cc
Result<Answer> handle_observe_overview(Exchange& exchange);
Result<Answer> handle_observe_runs(Exchange& exchange);
Result<Answer> handle_observe_run(Exchange& exchange);
Result<Answer> handle_observe_samplers(Exchange& exchange);
Result<Answer> handle_observe_sessions(Exchange& exchange);
Result<Answer> handle_observe_tenants(Exchange& exchange);
Result<Answer> handle_observe_workers(Exchange& exchange);

// observe_system.cc
Result<Answer> handle_observe_system(Exchange& exchange);
Result<Answer> handle_observe_bundle(Exchange& exchange);
std::string_view server_version();

// mcp.cc
Result<Answer> handle_mcp(Exchange& exchange);

// console.cc
Result<Answer> handle_root(Exchange& exchange);
Result<Answer> handle_console_file(Exchange& exchange);
Result<Answer> handle_console_login(Exchange& exchange);
Result<Answer> handle_console_logout(Exchange& exchange);

// openai.cc
Result<Answer> handle_oai_completions(Exchange& exchange);
Result<Answer> handle_oai_chat_completions(Exchange& exchange);
Result<Answer> handle_oai_models(Exchange& exchange);
Result<Answer> handle_oai_model(Exchange& exchange);

}  // namespace tuft::api
