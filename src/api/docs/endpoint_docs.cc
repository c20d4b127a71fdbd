// The request and the answer of each endpoint, in the language of openapi.h.
#include "api/docs/openapi.h"
#include "api/handlers/handlers.h"

namespace tuft::api {
namespace {

constexpr std::string_view kPageQuery = "limit?: int, offset?: int";

constexpr std::string_view kPartQuery = "limit?: int, cursor?: string";
#define TUFT_FILTER                                                                                     \
  "from?: string, until?: string, session?: string, run?: string, sampler?: string, request?: string, " \
  "operation?: string, base_model?: string, user?: string, service?: string, name?: string, text?: "    \
  "string, status?: \"ok\"|\"error\", min_duration?: number, max_duration?: number"
constexpr std::string_view kFilterQuery = TUFT_FILTER;
constexpr std::string_view kTracesQuery = TUFT_FILTER ", limit?: int, cursor?: string";
constexpr std::string_view kSeriesQuery = TUFT_FILTER
    ", fn?: \"count\"|\"errors\"|\"rate\"|\"mean\"|\"p50\"|\"p95\"|\"p99\"|\"busy\", by?: "
    "\"\"|\"name\"|\"operation\"|\"user\"|\"base_model\", step?: number";
constexpr std::string_view kLogsQuery = TUFT_FILTER
    ", level?: \"debug\"|\"info\"|\"warning\"|\"error\", event?: string, trace?: string, span?: string, after?: "
    "string, "
    "limit?: int, cursor?: string";
#undef TUFT_FILTER

constexpr ComponentDoc kComponents[] = {
    {"Error", "{detail: string}"},
    {"Future", "{request_id: id, model_id: id?}"},
    {"Cursor", "{offset: int, limit: int, total_count: int}"},
    {"SessionCursor", "{last_created_at: time, last_session_id: id}"},
    {"Checkpoint",
     "{checkpoint_id: string, checkpoint_type: \"training\"|\"sampler\"|\"external\", time: time, tinker_path: string, "
     "size_bytes: int, public: bool, expires_at: time?, user_metadata: map?}"},
    {"TrainingRun",
     "{training_run_id: id, base_model: string, model_owner: string, is_lora: bool, lora_rank: int, "
     "corrupted: bool, last_request_time: time, last_checkpoint: @Checkpoint?, "
     "last_sampler_checkpoint: @Checkpoint?, user_metadata: map?}"},
    {"ObservedRun",
     "{run: id, session: id, user: string, base_model: string, lora_rank: int, optimizer: string, created: number?, "
     "last_active: number?, alive: bool, corrupted: bool, steps: int, loss: number?, grad_norm: number?, "
     "learning_rate: "
     "number?, tokens_per_second: number?}"},
    {"LoraConfig", "{rank?: int, seed?: int, train_unembed?: bool, train_mlp?: bool, train_attn?: bool}"},
    {"ModelInput", "{chunks: [{type?: \"encoded_text\", tokens: [int]}]}"},
    {"Tensor", "{data: [number], dtype: \"int64\"|\"float32\", shape?: [int]}"},
    {"Pass", "{data: [{model_input: @ModelInput, loss_fn_inputs: any}], loss_fn: string, loss_fn_config?: any}"},
    {"AdamParams",
     "{learning_rate?: number, beta1?: number, beta2?: number, eps?: number, weight_decay?: number, "
     "grad_clip_norm?: number}"},
    {"DimuonParams", "{type: \"dimuon\", learning_rate: number, beta1?: number, grad_clip_norm?: number}"},
    {"OptimizerConfig", "{type: \"adamw\"|\"dimuon\", version?: int}"},
    {"TargetTokens",
     "{data: [int], dtype: \"int64\", shape: [int], sparse_crow_indices?: [int], sparse_col_indices?: [int]}"},
    {"SamplingParams", "{max_tokens?: int, seed?: int, stop?: any, temperature?: number, top_k?: int, top_p?: number}"},
};

constexpr EndpointDoc kDocs[] = {
    // service
    {handle_healthz, "Whether the server is up, whether its models are ready, and whether it leads or stands by",
     "role?: \"any\"|\"leader\"", "", "{status: \"ok\", ready: bool, role: \"leader\"|\"standby\"}"},
    {handle_server_capabilities, "The base models that can be trained and sampled", "", "",
     "{supported_models: [{model_name: string, max_context_length: int, capabilities: [\"training\"|\"sampling\"], "
     "trainable: bool, sampleable: bool}]}"},
    {handle_client_config, "Settings of the client, requested once", "", "{sdk_version?: string}", "any"},
    {handle_dynamic_config, "Settings of the client, requested periodically", "", "{sdk_version?: string}",
     "{refresh_interval_sec: int, sample_cancel_enabled: bool}"},
    {handle_auth_token, "Always refused: the API key is the credential", "", "{}", "any"},
    {handle_own_key, "Whose the API key is", "", "",
     "{key_id: int, name: string, note: string, details: {org_details: {name: string}, user_details: {email: "
     "string}}}"},
    {handle_delete_own_key, "Always refused: keys are in the configuration", "", "", "any"},
    {handle_telemetry, "Logs events of the SDK", "",
     "{events: [any], platform?: string, sdk_version?: string, session_id?: string}", "{status: \"accepted\"}"},
    {handle_metrics, "The metrics of the server and its workers", "", "", "text/plain"},
    {handle_openapi, "This document", "", "", "any"},
    {handle_docs, "This document as a page", "", "", "text/html"},
    // sessions
    {handle_create_session, "Creates a session", "",
     "{tags?: [string], user_metadata?: map, sdk_version?: string, project_id?: string, display_name?: string}",
     "{type: \"create_session\", session_id: id}"},
    {handle_search_sessions, "Your sessions that match, newest first; ended ones, too, as far as they are remembered",
     "",
     "{session_id?: id, project_ids?: [string], user_metadata?: map, display_name?: string, owner?: {type: "
     "\"own\"|\"accessible\"|\"user\", owner_urns?: [string]}, statuses?: [{type: "
     "\"active\"|\"cancelled\"|\"failed\"|\"client_finished\", reasons?: [string]}], limit?: int, cursor?: "
     "@SessionCursor}",
     "{sessions: [{session_id: id, created_at: time, owner: string, project_id: string, status: any, "
     "checkpoints_count: "
     "int, checkpoint_storage_bytes: int, display_name?: string, user_metadata: map}], next_cursor: @SessionCursor?}"},
    {handle_session_heartbeat, "Keeps a session alive", "", "{session_id: id}", "{type: \"session_heartbeat\"}"},
    {handle_list_sessions, "Your open sessions, newest first",
     "limit?: int, offset?: int, access_scope?: \"owned\"|\"accessible\"", "", "{sessions: [id], cursor: @Cursor}"},
    {handle_get_session, "The runs and samplers of a session", "access_scope?: \"owned\"|\"accessible\"", "",
     "{training_run_ids: [id], sampler_ids: [id], user_metadata: map}"},
    {handle_set_project, "Moves a session to a project", "", "{project_id: string}", ""},
    {handle_finish_session, "Ends a session: its runs are unloaded, their checkpoints stay", "",
     "{reason?: {type: \"success\"|\"errored\"|\"interrupted\"}, detail?: string}", "{}"},
    // training runs and checkpoints
    {handle_list_training_runs, "Your training runs, most recently used first",
     "limit?: int, offset?: int, access_scope?: \"owned\"|\"accessible\", project_id?: string", "",
     "{training_runs: [@TrainingRun], cursor: @Cursor}"},
    {handle_get_training_run, "A training run; with accessible, also another user's run that has a public checkpoint",
     "access_scope?: \"owned\"|\"accessible\"", "", "@TrainingRun"},
    {handle_list_run_checkpoints, "The checkpoints of a run, oldest first; all of them unless a page is requested",
     kPageQuery, "", "{checkpoints: [@Checkpoint], cursor: @Cursor?}"},
    {handle_list_checkpoints, "Your checkpoints, newest first", kPageQuery, "",
     "{checkpoints: [@Checkpoint], cursor: @Cursor?}"},
    {handle_delete_checkpoint,
     "Deletes a checkpoint; samplers that use it keep their copy. After a 503 repeat the request", "", "", ""},
    {handle_make_checkpoint_public, "Makes a checkpoint public: every user may load and sample it", "", "", ""},
    {handle_make_checkpoint_private, "Makes a checkpoint private again", "", "", ""},
    {handle_set_checkpoint_ttl, "Sets the seconds after which a checkpoint expires; null: never", "",
     "{ttl_seconds: int?}", ""},
    {handle_copy_weights, "Copies a checkpoint that you may read into a new training run of yours", "",
     "{source_path: string, destination_project_id?: string, ttl_seconds?: int, weights_access_token?: string}",
     "{tinker_path: string}"},
    {handle_checkpoint_archive, "A temporary URL at which a checkpoint can be downloaded without a key", "", "",
     "{url: string, expires: time}"},
    {handle_external_weights_urls, "A temporary URL for each file of a checkpoint that save_weights_external made", "",
     "", "{urls: map, expires: time}"},
    {handle_download_archive,
     "A checkpoint as a tar file in PEFT's layout, or one file of it (application/octet-stream)", "ticket: string", "",
     "application/x-tar"},
    // training
    {handle_create_model, "Creates a training run", "",
     "{session_id: id, model_seq_id: int, base_model: string, user_metadata?: map, lora_config?: @LoraConfig, "
     "optimizer_config?: @OptimizerConfig}",
     "@Future"},
    {handle_get_info, "The model of a training run", "", "{model_id: id}",
     "{model_id: id, model_data: {arch: string, model_name: string, tokenizer_id?: string}, is_lora: bool, lora_rank: "
     "int, model_name: string, optimizer_config: @OptimizerConfig}"},
    {handle_weights_info, "The base model and LoRA configuration of a checkpoint", "", "{tinker_path: string}",
     "{base_model: string, is_lora: bool, lora_rank: int, train_unembed: bool, train_mlp: bool, train_attn: bool}"},
    {handle_unload_model, "Unloads a training run from its worker", "", "{model_id: id}", "@Future"},
    {handle_forward, "A forward pass without gradients, as JSON", "",
     "{model_id: id, seq_id?: int, forward_input: @Pass}", "@Future"},
    {handle_forward_backward, "A forward and backward pass: tinker_public.ForwardBackwardRequest, or its JSON", "",
     kProtobufBody, "@Future"},
    {handle_optim_step, "An optimizer step", "",
     "{model_id: id, seq_id?: int, adam_params?: @AdamParams, optimizer_params?: @DimuonParams}", "@Future"},
    {handle_save_weights, "Saves the weights and the optimizer state", "",
     "{model_id: id, seq_id?: int, path?: string, ttl_seconds?: int, overwrite?: bool, user_metadata?: map}",
     "@Future"},
    {handle_save_weights_for_sampler, "Saves weights for sampling, under a name or as a sampling session", "",
     "{model_id: id, seq_id?: int, path?: string, sampling_session_seq_id?: int, ttl_seconds?: int, "
     "user_metadata?: map, kind?: \"snapshot\"|\"inflight\"}",
     "@Future"},
    {handle_save_weights_external, "Saves weights for download, encrypted with age if there are recipients", "",
     "{model_id: id, seq_id?: int, path: string, ttl_seconds?: int, user_metadata?: map, age_encryption_recipients?: "
     "[string]}",
     "@Future"},
    {handle_create_custom_loss, "Keeps a custom loss, a torch.fx graph, for the passes of a session", "",
     "{session_id: id, custom_loss_seq_id: int, name?: string, inputs: [{name: string, rank: int}], graph: any, type?: "
     "string}",
     "@Future"},
    {handle_load_weights, "Loads a checkpoint into a training run, or creates the run from it", "",
     "{path: string, optimizer?: bool, model_id?: id, seq_id?: int, session_id?: id, model_seq_id?: int, base_model?: "
     "string, user_metadata?: map, optimizer_config?: @OptimizerConfig}",
     "@Future"},
    // sampling
    {handle_create_sampling_session, "Creates a sampling session for a base model or a checkpoint", "",
     "{session_id: id, sampling_session_seq_id: int, base_model?: string, model_path?: string}",
     "{type: \"create_sampling_session\", sampling_session_id: id}"},
    {handle_get_sampler, "The base model and checkpoint of a sampling session", "", "",
     "{sampler_id: id, base_model: string, model_path: string?}"},
    {handle_join_sampling_session, "A number for another client of a sampling session", "", "{sampling_session_id: id}",
     "{type: \"join_sampling_session\", client_counter: int}"},
    {handle_asample, "Samples sequences from a prompt", "",
     "{sampling_session_id: id, seq_id?: int, num_samples?: int, prompt: @ModelInput, sampling_params: "
     "@SamplingParams, prompt_logprobs?: bool, prompt_logprobs_last_n?: int, topk_prompt_logprobs?: int, "
     "topk_sample_logprobs?: int, prompt_alt_tokens_k?: int, target_prompt_logprobs?: @TargetTokens, "
     "record_stability_info?: bool}",
     "{request_id: id, model_id: id?, sample_sequence_ids: [string]}"},
    // futures
    {handle_retrieve_future,
     "The result of an operation; 408 if it is not finished when the poll ends. A failed operation is answered with "
     "status 200 and {error: text, category: \"user\" or \"server\"}",
     "", "{request_id: id, allow_metadata_only?: bool}", "any"},
    {handle_retrieve_futures,
     "The samples of one client of a sampling session (cloned_sampler_id: seq_id / 10^9) that finished after "
     "prev_cursor. "
     "Waits for the next one like retrieve_future, but at the end of the poll the list is empty. timeout: 0 answers at "
     "once",
     "",
     "{target: {type: \"sampling_session\", sampling_session_id: id, cloned_sampler_id: int}, prev_cursor: int, "
     "timeout?: number, retrieved_request_ids?: [string]}",
     "{completions: [{state: \"finished\"|\"failed\", request_id: id, response_payload_uncompressed_size?: int}], "
     "cursor: int}"},
    {handle_cancel_future,
     "Cancels an operation that no worker trains with yet, or a sample at any time. A repetition changes nothing", "",
     "{request_id: id}", "{}"},
    // usage
    {handle_audit, "The audit events of a day for your checkpoints and runs",
     "event_type?: \"all\"|\"checkpoints\"|\"projects\"|\"teams\"|\"organizations\", day?: string", "",
     "{entries: [{timestamp: time, event: string, model_id: id?, tinker_path: string?, purpose: string?, "
     "event_details: any}]}"},
    {handle_billing_usage, "Tokens and checkpoints per hour", "starting_on: time, ending_before: time", "",
     "{data: [any], sessions: any}"},
    {handle_stored_checkpoints, "The storage of your checkpoints, by project", "project_id?: string", "",
     "{effective_rate_usd_per_gigabyte_month: number?, data: [{project_id: string?, user_name: string, "
     "checkpoint_count: int, size_bytes: int, size_gigabytes: number, estimated_monthly_cost_usd: number?}]}"},
    {handle_trace_export, "The trace of a session as a file", "", "",
     "{status: \"pending\"|\"ready\"|\"failed\", url?: string, error?: string}"},
    {handle_trace_file, "The file of a trace export", "token: string", "", "application/octet-stream"},
    // observation
    {handle_observe_whoami, "Whose the key or the console's session is, and what there is to see", "", "",
     "{user: string, operator: bool, version: string, store: bool, console: bool, server_time: number}"},
    {handle_observe_overview, "What the server does now, and what waits and why", "", "",
     "{server_time: number, version: string, started: number, ready: bool, reason: string?, models: [any], sessions: "
     "int, "
     "runs: int, samplers: int, pending: int, users_active: int?}"},
    {handle_observe_traces, "Traces with a span that meets the filter, newest first", kTracesQuery, "",
     "{traces: [any], next: string?}"},
    {handle_observe_histogram, "How long the spans that meet the filter took", kFilterQuery, "",
     "{bounds: [number], counts: [int], failed: [int]}"},
    {handle_observe_series, "The spans that meet the filter over time", kSeriesQuery, "",
     "{start: number, step: number, series: [{key: string, points: [number?]}]}"},
    {handle_observe_trace, "A trace, its logs, its critical path, and why it took its time", "", "",
     "{trace_id: string, start: number, duration: number, truncated: bool, spans: [any], logs: [any], linked_from: "
     "[any], "
     "critical_path: [{span_id: string, start: number, duration: number}], explanation: {summary: string, parts: "
     "[any]}}"},
    {handle_observe_perfetto, "A trace as a file for ui.perfetto.dev", "", "",
     "{displayTimeUnit: string, traceEvents: [any]}"},
    {handle_observe_logs, "Log records, newest first; with after, those that came since, oldest first", kLogsQuery, "",
     "{logs: [any], next: string?, newest: string}"},
    {handle_observe_metrics, "The metrics with their types, units, descriptions and labels", "", "",
     "{metrics: [any]}"},
    {handle_observe_metric, "A metric over time",
     "name: string, fn?: "
     "\"rate\"|\"increase\"|\"last\"|\"mean\"|\"max\"|\"mean_value\"|\"p50\"|\"p90\"|\"p95\"|\"p99\", "
     "by?: string, where?: string, from?: string, until?: string, step?: number",
     "",
     "{name: string, unit: string, type: string, fn: string, start: number, step: number, truncated: bool, series: "
     "[{labels: map, points: [number?]}]}"},
    {handle_observe_exemplars, "Measurements of a metric with the traces that they come from",
     "name: string, where?: string, from?: string, until?: string", "",
     "{exemplars: [{time: number, value: number?, trace_id: string, span_id: string, labels: map}]}"},
    {handle_observe_runs, "Your training runs, most recently used first", kPartQuery, "",
     "{runs: [@ObservedRun], next: string?}"},
    {handle_observe_run, "A training run: its checkpoints, where its time goes, and what would make it faster", "", "",
     "any"},
    {handle_observe_steps, "The curve of a training run", "after?: int, points?: int", "",
     "{steps: [{step: int, time: number?, loss: number?, grad_norm: number?, learning_rate: number?, tokens: int, "
     "seconds: "
     "number?, pass_seconds: number?, step_seconds: number?, wait_seconds: number?, save_seconds: number?, "
     "idle_seconds: "
     "number?, clipped: bool}]}"},
    {handle_observe_samplers, "Your sampling sessions, most recently used first", kPartQuery, "",
     "{samplers: [{sampler: id, session: id, user: string, base_model: string, model_path: string?, created: number?, "
     "last_active: number?, requests: int, follows_run: id?}], next: string?}"},
    {handle_observe_sessions, "Your sessions, newest first, and how busy they are", kPartQuery, "",
     "{sessions: [{session: id, user: string, created: number?, last_heartbeat: number?, display_name: string?, "
     "project: "
     "string?, sdk_version: string?, alive: bool, runs: int, samplers: int, busy_share: number?, concurrency: "
     "number?}], "
     "next: string?}"},
    {handle_observe_tenants, "What you use, and your quotas", "", "",
     "{tenants: [{user: string, sessions: int, runs: int, samplers: int, pending: int, queued_bytes: int, "
     "checkpoint_bytes: int, tokens: {train: int, input: int, output: int}, engine_share: number?, quotas: [{limit: "
     "string, "
     "used: int, max: int?}]}]}"},
    {handle_observe_workers, "The workers of the base models; for operators also their machines", "", "",
     "{workers: [{base_model: string, state: string, reason: string?, joined: bool, worker_id: string?, host: string?, "
     "address: string?, version: string?, pid: int, memory_bytes: int, cores: int, launcher: any, since: number?, "
     "changed: number?}]}"},
    {handle_observe_system, "The server, its workers and its configuration without secrets; most of it for operators",
     "", "",
     "{version: string, build: any, started: number?, host: any, config: string?, workers: any, telemetry: any, "
     "limits: any}"},
    {handle_observe_bundle, "All that a report of a problem needs, without secrets; for operators", "", "",
     "application/gzip"},
    {handle_mcp, "A message of the Model Context Protocol, for assistants", "",
     "{jsonrpc: \"2.0\", id?: any, method: string, params?: any}",
     "{jsonrpc: \"2.0\", id: any, result?: any, error?: any}"},
    // console
    {handle_root, "Leads to the console", "", "", "text/plain"},
    {handle_console_file, "The web console", "", "", "text/html"},
    {handle_console_login, "Logs in to the console: a cookie stands for the key", "", "{key: string}",
     "{user: string, operator: bool, version: string, store: bool, console: bool, server_time: number}"},
    {handle_console_logout, "Logs out of the console", "", "", ""},
    // OpenAI
    {handle_oai_completions, "OpenAI-compatible completions", "", "any", "any"},
    {handle_oai_chat_completions, "OpenAI-compatible chat completions", "", "any", "any"},
    {handle_oai_models, "OpenAI-compatible list of models, in pages", "after?: string, limit?: int", "",
     "{object: \"list\", data: [any], has_more: bool}"},
    {handle_oai_model, "OpenAI-compatible model", "", "", "any"},
};

}  // namespace

std::span<const EndpointDoc> endpoint_docs() {
  return kDocs;
}

std::span<const ComponentDoc> component_docs() {
  return kComponents;
}

}  // namespace tuft::api
