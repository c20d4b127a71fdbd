// Every handler, by resource. A handler reads its fields, calls the control plane once, and writes the answer.
#pragma once

#include "api/exchange.h"

namespace tuft::api {

// handlers_service.cc
Result<Answer> handle_healthz(Exchange& exchange);
Result<Answer> handle_server_capabilities(Exchange& exchange);
Result<Answer> handle_client_config(Exchange& exchange);
Result<Answer> handle_dynamic_config(Exchange& exchange);
Result<Answer> handle_telemetry(Exchange& exchange);
Result<Answer> handle_metrics(Exchange& exchange);

// openapi.cc
Result<Answer> handle_openapi(Exchange& exchange);
Result<Answer> handle_docs(Exchange& exchange);

// handlers_session.cc
Result<Answer> handle_create_session(Exchange& exchange);
Result<Answer> handle_session_heartbeat(Exchange& exchange);
Result<Answer> handle_auth_token(Exchange& exchange);

// handlers_rest.cc
Result<Answer> handle_list_sessions(Exchange& exchange);
Result<Answer> handle_get_session(Exchange& exchange);
Result<Answer> handle_set_project(Exchange& exchange);
Result<Answer> handle_finish_session(Exchange& exchange);
Result<Answer> handle_list_training_runs(Exchange& exchange);
Result<Answer> handle_get_training_run(Exchange& exchange);
Result<Answer> handle_list_run_checkpoints(Exchange& exchange);
Result<Answer> handle_list_checkpoints(Exchange& exchange);

// handlers_rest_checkpoints.cc
Result<Answer> handle_delete_checkpoint(Exchange& exchange);
Result<Answer> handle_publish_checkpoint(Exchange& exchange);
Result<Answer> handle_unpublish_checkpoint(Exchange& exchange);
Result<Answer> handle_set_checkpoint_ttl(Exchange& exchange);
Result<Answer> handle_checkpoint_archive(Exchange& exchange);
Result<Answer> handle_download_archive(Exchange& exchange);

// handlers_training.cc
Result<Answer> handle_create_model(Exchange& exchange);
Result<Answer> handle_get_info(Exchange& exchange);
Result<Answer> handle_weights_info(Exchange& exchange);
Result<Answer> handle_unload_model(Exchange& exchange);
Result<Answer> handle_forward(Exchange& exchange);
Result<Answer> handle_forward_backward(Exchange& exchange);
Result<Answer> handle_optim_step(Exchange& exchange);
Result<Answer> handle_save_weights(Exchange& exchange);
Result<Answer> handle_save_weights_for_sampler(Exchange& exchange);
Result<Answer> handle_load_weights(Exchange& exchange);

// handlers_sampling.cc
Result<Answer> handle_create_sampling_session(Exchange& exchange);
Result<Answer> handle_get_sampler(Exchange& exchange);
Result<Answer> handle_join_sampling_session(Exchange& exchange);
Result<Answer> handle_asample(Exchange& exchange);

// handlers_usage.cc
Result<Answer> handle_audit(Exchange& exchange);
Result<Answer> handle_billing_usage(Exchange& exchange);
Result<Answer> handle_stored_checkpoints(Exchange& exchange);
Result<Answer> handle_trace_export(Exchange& exchange);
Result<Answer> handle_trace_file(Exchange& exchange);

// handlers_futures.cc
Result<Answer> handle_retrieve_future(Exchange& exchange);
Result<Answer> handle_cancel_future(Exchange& exchange);
// What a poll is told when its time is over.
Response try_again_response(const control::FutureSnapshot& snapshot);
Response try_again_response(const control::RequestId& request);
// The {"request_id", "model_id"} of a submission, or why there is none; notes the ids for the span, as a handler does
// that writes its own answer.
Result<Answer> submitted(Exchange& exchange, const Result<control::Submitted>& submission);
void note_submission(Exchange& exchange, const control::Submitted& submission);

// handlers_openai.cc
Result<Answer> handle_oai_completions(Exchange& exchange);
Result<Answer> handle_oai_chat_completions(Exchange& exchange);
Result<Answer> handle_oai_models(Exchange& exchange);
Result<Answer> handle_oai_model(Exchange& exchange);

}  // namespace tuft::api
