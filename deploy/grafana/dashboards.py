#!/usr/bin/env python3
"""Writes generated/*.json. Change a panel here, run this script, and commit both; --check compares them."""
import json
import pathlib
import sys

from panels import RED, YELLOW, Panel, dashboard, gauge, mean, quantiles, rate, stat
from traces import TRACES

HERE = pathlib.Path(__file__).parent / "generated"

# Panels that several dashboards share.

TRAINING_THROUGHPUT = Panel(
    "Training throughput P50 by base model", "Half of the forward and forward_backward operations ran at this rate or "
    "faster: input tokens over the whole time of the operation, its wait included.", "suffix: tokens/s",
    quantiles("tuft_training_tokens_per_second_per_second", "MODEL", "base_model", "{{base_model}}", points=(0.5,)))
SAMPLING_QPS = Panel(
    "Sampling QPS", "Sampling requests that ended a second, failed ones included.", "reqps",
    rate("tuft_sampling_requests_total", "MODEL", "base_model"))
REQUEST_LATENCY = Panel(
    "Request latency", "A sampling request in the worker, from its arrival to its end, failures included.", "ms",
    quantiles("request_latency_milliseconds", "WORKER"), steps=((200, YELLOW), (500, RED)))
TTFT = Panel(
    "TTFT", "From a request's arrival in the worker to its first token.", "ms", quantiles("ttft_milliseconds", "WORKER"))
GPU = Panel(
    "GPU utilisation", "Busy share of each GPU. Empty where no library of a vendor finds one.", "percent",
    gauge("tuft_resource_gpu_utilization_percent", "SERVER", "instance, gpu_id", "max"),
    steps=((80, YELLOW), (90, RED)), top=100)
MEMORY_TREND = Panel(
    "Memory trend", "Used share of the memory of the machine, or of the container where it has a limit; below it, what "
    "24 hours at the pace of the last half hour would lead to.", "percent",
    [('max by (instance) (tuft_resource_memory_utilization_percent{SERVER, worker=""})', "{{instance}}"),
     ('clamp_min(max by (instance) (predict_linear(tuft_resource_memory_utilization_percent{SERVER, worker=""}[30m], '
     '86400)), 0)',
      "{{instance}} in 24 h")],
    steps=((85, YELLOW), (95, RED)))
FAILED_RATIO = ('(sum(rate(tuft_futures_completed_total{SERVER, status="failed"}[RANGE])) or vector(0)) / '
                "(sum(rate(tuft_futures_completed_total{SERVER}[RANGE])) > 0)")
ERROR_RATE = Panel(
    "Error rate", "Share of operations that failed, by whose fault it was, and of HTTP requests answered 5xx, but for "
    "servers that stand by, which do so on purpose.",
    "percentunit",
    [('sum by (error_category) (rate(tuft_futures_completed_total{SERVER, status="failed"}[RANGE])) / '
      "ignoring(error_category) group_left() sum(rate(tuft_futures_completed_total{SERVER}[RANGE]))",
      "operations, {{error_category}}"),
     ('(sum(rate(http_server_request_duration_seconds_count{SERVER, http_response_status_code=~"5.."}[RANGE]) '
      "unless on (instance) tuft_leader{SERVER} == 0) or vector(0)) / "
      "sum(rate(http_server_request_duration_seconds_count{SERVER}[RANGE]) "
      "unless on (instance) tuft_leader{SERVER} == 0)", "HTTP 5xx")],
    steps=((0.05, YELLOW), (0.10, RED)))
ERROR_TYPES = Panel(
    "Error types", "Sampling requests that failed, by the type of the error, and HTTP requests answered 4xx or 5xx, by "
    "status.", "reqps",
    [('sum by (error_type) (rate(gen_ai_server_request_duration_seconds_count{gen_ai_request_model=~"$base_model", '
      'SERVER, error_type!=""}[RANGE]))', "sampling, {{error_type}}"),
     ("sum by (http_response_status_code) (rate(http_server_request_duration_seconds_count{SERVER, "
      'http_response_status_code=~"[45].."}[RANGE]))', "HTTP {{http_response_status_code}}")])
KV_MEMORY = Panel(
    "KV cache memory", "Memory of the KV cache in use and free.", "bytes",
    gauge("kv_cache_memory_bytes", "WORKER", "worker")
    + [("sum by (worker) (kv_cache_free_memory_bytes{WORKER})", "{{worker}} free")])
LAST_STEP = Panel(
    "Time since the engine's newest step", "0 while there is nothing to do. It grows when the engine hangs.", "s",
    gauge("tuft_scheduler_last_step_age_seconds", "MODEL", "base_model", "max"), steps=((30, YELLOW), (60, RED)))

OVERVIEW = dashboard("tuft-overview", "tuft / Overview", "Is it well, what does it do, how fast is it.", [
    ("Now", [
        stat("Servers", "Servers that Prometheus reads.", "none", 'count(tuft_build_info{SERVER, worker=""})'),
        stat("Workers up", "Base models whose worker answers.", "none", "sum(tuft_worker_up{MODEL})", steps=()),
        stat("Sessions", "Client sessions alive.", "none", "sum(tuft_sessions_active{SERVER})"),
        stat("Operations in flight", "Accepted and not yet ended.", "none", "sum(tuft_futures_queue_length{SERVER})"),
        stat("Failed operations", "Share of the operations that ended.", "percentunit", FAILED_RATIO,
             ((0.05, YELLOW), (0.10, RED))),
        stat("Training tokens", "Tokens through training passes.", "suffix: tok/s",
             "sum(rate(tuft_training_tokens_total{MODEL}[RANGE]))"),
        stat("Output tokens", "Tokens that sampling computes.", "suffix: tok/s",
             "sum(rate(decode_tokens_processed_total{WORKER}[RANGE]))"),
        stat("KV cache", "Fullest KV cache of any worker.", "percentunit", "max(tuft_kv_cache_usage_ratio{MODEL})",
             ((0.8, YELLOW), (0.95, RED)), "gauge", 1)]),
    ("Work", [
        TRAINING_THROUGHPUT, SAMPLING_QPS,
        Panel("Operations that ended", "By what they were and how they ended; each is counted once.", "ops",
              rate("tuft_requests_terminal_total", "MODEL", "operation_type, status")),
        ERROR_RATE,
        Panel("Operations waiting", "Accepted, and no worker has started on them.", "none",
              gauge("tuft_futures_queued", "SERVER", "operation_type"), stack=True),
        Panel("Oldest operation", "Age of the oldest operation that waits or runs.", "s",
              gauge("tuft_futures_oldest_age_seconds", "SERVER", "state", "max"))]),
    ("Latency", [
        Panel("Operations: waiting", "From acceptance until a worker starts on it, 95th percentile.", "s",
              quantiles("tuft_futures_wait_time_seconds", "SERVER", "operation_type", "{{operation_type}}", (0.95,))),
        Panel("Operations: running", "From a worker's start on it to its end, 95th percentile.", "s",
              quantiles("tuft_futures_execution_time_seconds", "SERVER", "operation_type", "{{operation_type}}",
              (0.95,))),
        Panel("Sampling requests", "From the request's acceptance by the server to its last token.", "s",
              quantiles("gen_ai_server_request_duration_seconds", 'gen_ai_request_model=~"$base_model", SERVER')),
        Panel("First token", "From the acceptance of a sampling request to its first token.", "s",
              quantiles("gen_ai_server_time_to_first_token_seconds", 'gen_ai_request_model=~"$base_model", SERVER')),
        Panel("HTTP requests by status", "Polls that wait for a result are among them.", "reqps",
              rate("http_server_request_duration_seconds_count", "SERVER", "http_response_status_code")),
        Panel("HTTP latency by route", "95th percentile, without the polls, which wait on purpose.", "s",
              quantiles("http_server_request_duration_seconds", 'SERVER, http_route!="/api/v1/retrieve_future"',
              "http_route",
                        "{{http_route}}", (0.95,)))]),
    ("Machine", [GPU, MEMORY_TREND, LAST_STEP]),
    ("Errors", [ERROR_TYPES])])

SAMPLING = dashboard("tuft-sampling", "tuft / Sampling", "Continuous batching: prefill, decode, KV cache, latency.", [
    ("Now", [
        stat("Active requests", "Requests in the current step.", "none", "sum(active_requests_count{WORKER})"),
        stat("Waiting requests", "Requests that wait for a place in a step.", "none",
             "sum(waiting_requests_count{WORKER})",
             ((16, YELLOW), (64, RED))),
        stat("Decode/prefill ratio", "Decode tokens over prefill tokens.", "none",
             "sum(rate(decode_tokens_processed_total{WORKER}[RANGE])) / "
             "sum(rate(prefill_tokens_processed_total{WORKER}[RANGE]))"),
        stat("KV cache", "Fullest KV cache of any worker.", "percentunit", "max(tuft_kv_cache_usage_ratio{MODEL})",
             ((0.8, YELLOW), (0.95, RED)), "gauge", 1),
        stat("Prefill rate", "Prompt tokens computed.", "suffix: tok/s",
             "sum(rate(prefill_tokens_processed_total{WORKER}[RANGE]))"),
        stat("Decode rate", "Output tokens computed.", "suffix: tok/s",
             "sum(rate(decode_tokens_processed_total{WORKER}[RANGE]))"),
        stat("Sampling QPS", "Sampling requests that ended a second.", "reqps",
             "sum(rate(tuft_sampling_requests_total{MODEL}[RANGE]))"),
        stat("Failed requests", "Share of the sampling requests that ended.", "percentunit",
             '(sum(rate(tuft_sampling_requests_total{MODEL, status="failed"}[RANGE])) or vector(0)) / '
             "(sum(rate(tuft_sampling_requests_total{MODEL}[RANGE])) > 0)", ((0.05, YELLOW), (0.10, RED)))]),
    ("Load", [
        SAMPLING_QPS,
        Panel("Active and waiting requests", "Requests in the engine.", "none",
              gauge("tuft_scheduler_requests", "MODEL", "base_model, state")),
        KV_MEMORY,
        Panel("Prefill/decode rate", "Prompt and output tokens computed a second.", "suffix: tok/s",
              [("sum(rate(prefill_tokens_processed_total{WORKER}[RANGE]))", "prefill"),
               ("sum(rate(decode_tokens_processed_total{WORKER}[RANGE]))", "decode")]),
        Panel("Batch fill", "Tokens of a step over its token budget.", "percent",
              quantiles("batch_fill_percentage_percent", "WORKER"), top=100),
        Panel("Decode/prefill ratio over time",
              "High: sequences are long. Low: prompts take the steps. The newest ratio is that of the last step "
              "with prefill; it stays while nothing runs.", "none",
              [("sum by (worker) (rate(decode_tokens_processed_total{WORKER}[RANGE])) / "
                "sum by (worker) (rate(prefill_tokens_processed_total{WORKER}[RANGE]))", "{{worker}}"),
               ("max by (worker) (decode_prefill_ratio{WORKER})", "{{worker}} newest step")])]),
    ("Latency", [
        TTFT, REQUEST_LATENCY,
        Panel("Time between tokens", "Of a sequence that is being decoded.", "s",
              quantiles("tuft_sampling_inter_token_latency_seconds", "MODEL")),
        Panel("Time per output token", "After the first, of successful requests.", "s",
              quantiles("gen_ai_server_time_per_output_token_seconds",
              'gen_ai_request_model=~"$base_model", SERVER')),
        Panel("Queue", "From arrival in the worker to the first step.", "s",
              quantiles("tuft_scheduler_queue_duration_seconds", "MODEL", "kind", "{{kind}}", (0.5, 0.99))),
        Panel("Where the time goes", "Mean seconds of a request in prefill and in decode.", "s",
              [("sum(rate(tuft_sampling_prefill_duration_seconds_sum{MODEL}[RANGE])) / "
              "sum(rate(tuft_sampling_prefill_duration_seconds_count{MODEL}[RANGE]))", "prefill"),
               ("sum(rate(tuft_sampling_decode_duration_seconds_sum{MODEL}[RANGE])) / "
               "sum(rate(tuft_sampling_decode_duration_seconds_count{MODEL}[RANGE]))", "decode")],
              stack=True)]),
    ("Engine", [
        Panel("Step duration", "One step, by phase, 95th percentile.", "s",
              quantiles("tuft_scheduler_step_duration_seconds", "MODEL", "phase", "{{phase}}", (0.95,))),
        Panel("Between steps", "Time of the engine thread between two sampling steps that follow each other.", "s",
              quantiles("tuft_scheduler_step_overhead_seconds", "MODEL")),
        Panel("Steps", "Steps a second, by phase.", "ops", rate("tuft_scheduler_steps_total", "MODEL", "phase"),
              stack=True),
        Panel("Sequences in a step", "By phase.", "none", quantiles("tuft_scheduler_batch_requests", "MODEL", "phase",
              "{{phase}}", (0.5, 0.95))),
        Panel("Tokens in a step", "Prefill and decode together.", "none", quantiles("tuft_scheduler_batch_tokens",
              "MODEL")),
        Panel("KV cache usage", "Share of the limit that is in use.", "percentunit",
              gauge("tuft_kv_cache_usage_ratio", "MODEL", "base_model", "max"), steps=((0.95, RED),), top=1)]),
    ("KV cache and arithmetic", [
        Panel("Prefix cache", "Share of the prompt tokens that were in it and need not be computed.", "percentunit",
              [("sum by (base_model) (rate(tuft_prefix_cache_hits_total{MODEL}[RANGE])) / "
                "sum by (base_model) (rate(tuft_prefix_cache_queries_total{MODEL}[RANGE]))", "{{base_model}}")], top=1),
        Panel("Short of blocks", "Steps in which a sequence had to wait or give way, sequences that gave their blocks "
              "back, and cached blocks that were given up, a second.", "ops",
              [("sum by (base_model) (rate(tuft_kv_cache_alloc_failures_total{MODEL}[RANGE]))", "{{base_model}} steps"),
               ("sum by (base_model) (rate(tuft_scheduler_preemptions_total{MODEL}[RANGE]))",
                "{{base_model}} preempted"),
               ("sum by (base_model) (rate(tuft_kv_cache_evictions_total{MODEL}[RANGE]))", "{{base_model}} evicted")]),
        Panel("Is the cache large enough", "How long a cached block was not used before a prompt took it over, and "
              "before its place was needed. The first near the second: a larger cache would find more.", "s",
              quantiles("tuft_kv_cache_block_reuse_gap_seconds", "MODEL", "", "taken over", (0.5, 0.95)) +
              quantiles("tuft_kv_cache_block_idle_seconds", "MODEL", "", "given up", (0.05, 0.5))),
        Panel("Unused ends of blocks", "Share of the KV cache in use that holds no token.", "percentunit",
              gauge("tuft_kv_cache_fragmentation_ratio", "MODEL", "base_model", "max"), top=1),
        Panel("Arithmetic", "Useful floating point operations a second, prompts and output.", "suffix: FLOP/s",
              rate("tuft_sampling_model_flops_total", "MODEL", "base_model, kind"), stack=True),
        Panel("Utilisation while steps run", "Of what the device can do (MFU). Decoding a few sequences is bound by "
              "memory and stays low.", "percentunit", gauge("tuft_sampling_mfu_ratio", "MODEL", "base_model", "max"),
              top=1),
        Panel("Memory traffic", "What steps read and write at the least: weights, adapters, keys and values.", "Bps",
              rate("tuft_sampling_model_bytes_total", "MODEL", "base_model, direction"))]),
    ("Requests", [
        Panel("How sequences end", "stop, length, error, cancelled.", "ops", rate("tuft_sampling_finished_total",
              "MODEL", "finish_reason"), stack=True),
        Panel("Output tokens of a sequence", "Its length when it ended.", "none",
              quantiles("tuft_sampling_output_tokens", "MODEL")),
        Panel("Prompt tokens of a request", "Its length when it came.", "none",
              quantiles("tuft_sampling_prompt_tokens", "MODEL")),
        Panel("Output tokens per second of a request", "Over its whole time, its wait included.", "suffix: tok/s",
              quantiles("tuft_sampling_tokens_per_second_per_second", "MODEL", points=(0.05, 0.5, 0.95))),
        Panel("Samples asked for", "num_samples of the requests.", "none",
              quantiles("tuft_sampling_params_num_samples", "MODEL", points=(0.5, 0.99))),
        Panel("Refused by the engine", "By reason, and sequences that failed because a logit was not finite.", "ops",
              rate("tuft_scheduler_admission_rejections_total", "MODEL", "reason") +
              [("sum by (base_model) (rate(tuft_sampling_nonfinite_logits_total{MODEL}[RANGE]))",
              "{{base_model}} logits not finite")])])])

TRAINING = dashboard("tuft-training", "tuft / Training", "Runs, steps, loss, gradients, checkpoints.", [
    ("Now", [
        stat("Adapters in training", "Of all users.", "none", "sum(tuft_training_models_active{MODEL})"),
        stat("Optimizer steps", "Taken a second.", "suffix: steps/s",
             "sum(rate(tuft_training_optim_steps_total{MODEL}[RANGE]))"),
        stat("Tokens", "Through training passes.", "suffix: tok/s",
             "sum(rate(tuft_training_tokens_total{MODEL}[RANGE]))"),
        stat("Newest optimizer step", "Time since it, of any run.", "s",
             "min(tuft_training_last_step_age_seconds{MODEL})"),
        stat("Losses and gradients not finite", "In the last hour.", "none",
             "sum(increase(tuft_training_nonfinite_total{MODEL}[1h])) or vector(0)", ((1, RED),)),
        stat("Checkpoints", "Saved in the last hour.", "none",
             "sum(increase(tuft_training_checkpoints_saved_total{SERVER}[1h]))"),
        stat("Checkpoints that failed", "In the last hour.", "none",
             "sum(increase(tuft_checkpoint_failures_total{SERVER}[1h])) or vector(0)", ((1, RED),)),
        stat("Checkpoint disk", "Share in use.", "percentunit",
             'max(tuft_checkpoint_disk_usage_bytes{SERVER, state="used"} / ignoring(state) sum without (state) '
             '(tuft_checkpoint_disk_usage_bytes{SERVER}))',
             ((0.85, YELLOW), (0.95, RED)), "gauge", 1)]),
    ("Throughput", [
        TRAINING_THROUGHPUT,
        Panel("Tokens", "Through training passes, by kind.", "suffix: tok/s", rate("tuft_training_tokens_total",
              "MODEL", "base_model, kind"), stack=True),
        Panel("Optimizer steps", "A second.", "suffix: steps/s", rate("tuft_training_optim_steps_total", "MODEL",
              "base_model")),
        Panel("Step by phase", "95th percentile of waiting, forward, backward and optimizer.", "s",
              quantiles("tuft_training_step_duration_seconds", "MODEL", "phase", "{{phase}}", (0.95,))),
        Panel("Why is it slow", "Seconds a second spent in each phase: what stands out is where the time goes.",
              "none",
              rate("tuft_training_step_duration_seconds_sum", "MODEL", "phase"), stack=True),
        Panel("Passes of a request", "More than one: it was split to keep memory bounded.", "none",
              quantiles("tuft_training_micro_batches", "MODEL", points=(0.5, 0.99))),
        Panel("Runs together", "Mean number of runs in a training pass, and in a step of the optimizer.", "none",
              mean("tuft_training_batch_runs", "MODEL", "phase")),
        Panel("Fill of passes", "Tokens of a training pass over its token budget. Passes have no padding.",
              "percentunit", quantiles("tuft_training_batch_fill", "MODEL", points=(0.5, 0.95))),
        Panel("Furthest behind its share", "Tokens that the adapter furthest behind has saved up. High for long: its "
              "datums are long, or others take the passes.", "none",
              gauge("tuft_scheduler_fairness_deficit_max", "MODEL", "base_model", "max")),
        Panel("Arithmetic", "Useful floating point operations a second, there and back.", "suffix: FLOP/s",
              rate("tuft_training_model_flops_total", "MODEL", "base_model, pass"), stack=True),
        Panel("Utilisation", "Of what the device can do (MFU): while passes run, and of all the time.", "percentunit",
              [("max by (base_model) (tuft_training_mfu_ratio{MODEL})", "{{base_model}} while passes run"),
               ("sum by (base_model) (rate(tuft_training_model_flops_total{MODEL}[RANGE])) / "
                "sum by (base_model) (tuft_device_peak_flops_per_second{MODEL})", "{{base_model}} of all the time")],
              top=1),
        Panel("Device time", "Seconds a second that the device worked, by kind. GPUs only.", "none",
              rate("tuft_device_time_seconds_total", "MODEL", "base_model, work"), stack=True),
        Panel("Out of memory", "Training passes that failed for lack of memory.", "ops",
              rate("tuft_training_ooms_total", "MODEL", "base_model"))]),
    ("Learning", [
        Panel("Loss", "Mean loss of a forward_backward per weighted token, over all runs.", "none",
              mean("tuft_training_loss", "MODEL", "loss_fn") + quantiles("tuft_training_loss", "MODEL", points=(0.5,
              0.95))),
        Panel("Gradient norm", "Before clipping.", "none", quantiles("tuft_training_grad_norm", "MODEL")),
        Panel("Clipped", "Share of optimizer steps whose gradient was clipped.", "percentunit",
              [("(sum by (base_model) (rate(tuft_training_grad_clipped_total{MODEL}[RANGE])) or 0 * sum by "
              "(base_model) "
                "(rate(tuft_training_optim_steps_total{MODEL}[RANGE]))) / sum by (base_model) "
                "(rate(tuft_training_optim_steps_total{MODEL}[RANGE]))",
                "{{base_model}}")], top=1),
        Panel("Runs", "By state.", "none", gauge("tuft_training_runs", "MODEL", "base_model, state"), stack=True),
        Panel("Newest optimizer step", "Time since it, of any run of a base model.", "s",
              gauge("tuft_training_last_step_age_seconds", "MODEL", "base_model", "min")),
        Panel("Not finite", "Losses, gradients and updates, by what it was.", "ops",
              rate("tuft_training_nonfinite_total", "MODEL", "what"))]),
    ("Checkpoints", [
        Panel("Saved", "By type.", "ops", rate("tuft_training_checkpoints_saved_total", "SERVER", "checkpoint_type")),
        Panel("Duration", "Of saving and loading, 95th percentile.", "s",
              quantiles("tuft_checkpoint_duration_seconds", "SERVER", "operation", "{{operation}}", (0.95,))),
        Panel("Size", "Of a saved checkpoint, median.", "bytes",
              quantiles("tuft_training_checkpoint_size_bytes", "SERVER", "checkpoint_type", "{{checkpoint_type}}",
              (0.5,))),
        Panel("Failed", "By operation and reason.", "ops", rate("tuft_checkpoint_failures_total", "SERVER",
              "operation, reason")),
        Panel("Disk", "Of the checkpoint directory's file system.", "bytes",
              gauge("tuft_checkpoint_disk_usage_bytes", "SERVER", "instance, state"), stack=True),
        Panel("Runs brought back", "After restarts of the server, by result.", "none",
              [("sum by (result) (tuft_restore_runs_total{SERVER})", "{{result}}")])])])

TENANTS = dashboard("tuft-adapters-tenants", "tuft / Adapters and tenants",
"Who is served, which adapters are in the engine, who waits.", [
    ("Sessions", [
        Panel("Sessions", "Client sessions and sampling sessions.", "none",
              [("sum(tuft_sessions_active{SERVER})", "client sessions"),
               ("sum by (base_model) (tuft_sampling_sessions_active{MODEL})", "sampling sessions, {{base_model}}")]),
        Panel("Sessions that the server closed", "By reason.", "ops", rate("tuft_sessions_expired_total", "SERVER",
              "reason")),
        Panel("Events that clients reported", "By name and severity.", "ops", rate("tuft_client_events_total",
              "SERVER", "event, severity")),
        Panel("Requests by user", "Needs telemetry.tenant_label: true.", "ops", rate("tuft_tenant_requests_total",
              "SERVER", "tenant")),
        Panel("Tokens by user", "Needs telemetry.tenant_label: true.", "suffix: tok/s",
              rate("tuft_tenant_tokens_total", "SERVER", "tenant, kind")),
        Panel("Refused at the edge", "By reason; requests without a valid key apart.", "ops",
              rate("tuft_http_rejected_total", "SERVER", "reason") +
              [("sum by (reason) (rate(tuft_auth_failures_total{SERVER}[RANGE]))", "key {{reason}}")])]),
    ("Edge", [
        Panel("Refused for load", "By reason: work_overloaded is the queue of the work threads; user_* are limits of one "
              "user. Streams of the OpenAI API are apart.", "ops",
              [('sum by (reason) (rate(tuft_http_rejected_total{SERVER, reason=~".*overloaded"}[RANGE]))', "{{reason}}"),
               ('sum by (endpoint) (rate(tuft_openai_requests_total{SERVER, status="rejected"}[RANGE]))',
                "OpenAI {{endpoint}}, all refusals")]),
        Panel("Memory of requests and answers", "Bodies that are being received, and answers that wait until their clients "
              "have read them.", "bytes",
              [("sum(tuft_http_receiving_bytes{SERVER})", "received"), ("sum(tuft_http_sending_bytes{SERVER})", "sent")],
              stack=True),
        Panel("Waiting for a turn", "Of requests that do not have their turn at once, because an I/O thread is busy; clients take "
              "turns.", "s", quantiles("tuft_http_turn_wait_duration_seconds", "SERVER")),
        Panel("Memory of operations", "Charged to users: operations that have not finished, and what is being decoded.",
              "bytes", [("sum(tuft_futures_payload_bytes{SERVER})", "operations")])]),
    ("Adapters", [
        Panel("Adapters in training", "By base model.", "none", gauge("tuft_training_models_active", "MODEL",
              "base_model")),
        Panel("Adapters in the engine", "In training, and saved ones that are sampled.", "none",
              gauge("tuft_lora_adapters", "MODEL", "base_model, kind")),
        Panel("Memory of adapters", "Weights, optimizer state and gradients.", "bytes",
              gauge("tuft_lora_memory_bytes", "MODEL", "part"), stack=True),
        Panel("Loading an adapter", "Into the engine, 95th percentile.", "s",
              quantiles("tuft_lora_load_duration_seconds", "MODEL", "source", "{{source}}", (0.95,))),
        Panel("Adapters in one step", "Distinct adapters that one sampling step served.", "none",
              quantiles("tuft_scheduler_batch_adapters", "MODEL", points=(0.5, 0.99))),
        Panel("Found in the engine", "Share of the requests whose adapter need not be brought back from its page.",
              "percentunit",
              [("sum by (kind) (rate(tuft_lora_cache_hits_total{MODEL}[RANGE])) / "
                "sum by (kind) (rate(tuft_lora_cache_lookups_total{MODEL}[RANGE]))", "{{kind}}")], top=1),
        Panel("Put out", "Adapters that left the engine because others needed the memory.", "ops",
              rate("tuft_lora_evictions_total", "MODEL", "kind")),
        Panel("Waiting for an adapter", "Samples and runs whose adapter is on its way back, or yields; by kind the adapters "
              "that wait for room.", "none",
              gauge("tuft_lora_requests_waiting_for_adapter", "MODEL", "base_model") +
              gauge("tuft_lora_adapters_waiting", "MODEL", "base_model, kind")),
        Panel("Memory of the pool", "Set aside for adapters in the engine, and its limit; adapters that have left it, until "
              "their page is written.", "bytes",
              gauge("tuft_lora_pool_memory_bytes", "MODEL", "base_model, state") +
              [("sum by (base_model) (tuft_lora_page_pending_bytes{MODEL})", "{{base_model}} leaving")])]),
    ("Operations", [
        Panel("Accepted", "By type.", "ops", rate("tuft_futures_created_total", "SERVER", "operation_type")),
        Panel("In flight", "Waiting or running, by queue state.", "none", gauge("tuft_futures_queue_length", "SERVER",
              "queue_state")),
        Panel("Running", "A worker is busy with them.", "none", gauge("tuft_futures_running", "SERVER",
              "operation_type"), stack=True),
        Panel("Waiting for their turn", "An operation of a run waits for those before it; 95th percentile.", "s",
              quantiles("tuft_sequence_guard_wait_duration_seconds", "SERVER", "operation_type", "{{operation_type}}",
              (0.95,))),
        Panel("Came out of order", "Before an operation with a lower seq_id.", "ops",
              rate("tuft_sequence_guard_out_of_order_total", "SERVER", "operation_type"))]),
    ("Results", [
        Panel("Not fetched yet", "Results that wait for their client.", "none", gauge("tuft_futures_ready_unread",
              "SERVER", "operation_type"), stack=True),
        Panel("Until fetched", "From a result being ready to its first delivery.", "s",
              quantiles("tuft_futures_delivery_delay_seconds", "SERVER")),
        Panel("Polls for a result", "How often clients ask until they get it.", "none",
              quantiles("tuft_futures_retrieve_polls", "SERVER")),
        Panel("Asked to try again", "Polls answered without a result, by queue state.", "ops",
              rate("tuft_futures_try_again_total", "SERVER", "queue_state")),
        Panel("Memory of operations", "Results are kept until they are fetched or too old.", "bytes",
              [("sum(tuft_http_receiving_bytes{SERVER})", "bodies being received"),
               ("sum(tuft_futures_payload_bytes{SERVER})", "not finished"),
               ("sum(tuft_futures_store_bytes{SERVER})", "results")]),
        Panel("Dropped before they were fetched", "By reason.", "ops", rate("tuft_futures_evicted_total", "SERVER",
              "reason")),
        Panel("Submission as clients see it", "Round trip that the SDK measured, 95th percentile.", "s",
              quantiles("tuft_client_roundtrip_duration_seconds", "SERVER", "operation_type", "{{operation_type}}",
              (0.95,)))])])

RESOURCES = dashboard("tuft-resources", "tuft / Resources", "Machine, GPUs, processes, workers, store.", [
    ("Machine", [
        Panel("CPU", "Busy share of the machine's processors.", "percent",
              [('max by (instance) (tuft_resource_cpu_utilization_percent{SERVER, worker=""})', "{{instance}}")],
              top=100),
        MEMORY_TREND,
        Panel("Memory", "Of the machine, or of the container where it has a limit.", "bytes",
              [('max by (instance) (tuft_resource_memory_used_bytes{SERVER, worker=""})', "{{instance}} used"),
               ('max by (instance) (tuft_resource_memory_total_bytes{SERVER, worker=""})', "{{instance}} total")]),
        Panel("Disk", "Bytes that block devices read and wrote.", "Bps", rate("system_disk_io_bytes_total", "SERVER",
              "disk_io_direction")),
        Panel("Network", "Loopback left out.", "Bps", rate("system_network_io_bytes_total", "SERVER",
              "network_io_direction")),
        Panel("File systems", "That the server uses.", "bytes",
              gauge("system_filesystem_usage_bytes", "SERVER",
              "system_filesystem_mountpoint, system_filesystem_state", "max"), stack=True)]),
    ("GPUs", [
        GPU,
        Panel("GPU memory", "Used, and there is.", "bytes",
              gauge("tuft_resource_gpu_memory_used_bytes", "SERVER", "instance, gpu_id", "max") +
              [("max by (instance, gpu_id) (tuft_resource_gpu_memory_total_bytes{SERVER})",
              "{{instance}} {{gpu_id}} total")]),
        Panel("Power and temperature", "Of each GPU.", "none",
              [("max by (instance, hw_id) (hw_power_watts{SERVER})", "{{instance}} {{hw_id}} W"),
               ("max by (instance, hw_id) (hw_temperature_celsius{SERVER})", "{{instance}} {{hw_id}} °C")])]),
    ("Processes", [
        Panel("Processor time", "Cores in use; the process without a worker's name is the server.", "none",
              rate("process_cpu_time_seconds_total", "SERVER", "instance, worker"), stack=True),
        Panel("Resident memory", "Of each process.", "bytes", gauge("process_memory_usage_bytes", "SERVER",
              "instance, worker", "max"), stack=True),
        Panel("Threads and descriptors", "Of each process.", "none",
              [("max by (instance, worker) (process_thread_count{SERVER})", "{{instance}} {{worker}} threads"),
               ("max by (instance, worker) (process_unix_file_descriptor_count{SERVER})",
               "{{instance}} {{worker}} descriptors")]),
        Panel("Context switches", "Involuntary ones tell of too few processors.", "ops",
              rate("process_context_switches_total", "SERVER", "worker, process_context_switch_type")),
        Panel("Page faults", "Major ones read from disk.", "ops", rate("process_paging_faults_total", "SERVER",
              "worker, system_paging_fault_type")),
        Panel("Up since", "Of each process; a fall is a restart.", "s", gauge("process_uptime_seconds", "SERVER",
              "instance, worker", "max"))]),
    ("Workers", [
        Panel("Workers", "By state.", "none", gauge("tuft_workers", "MODEL", "base_model, state"), stack=True),
        Panel("Busy", "Share of the time that the engine thread computed.", "percentunit",
              gauge("tuft_worker_busy_ratio", "MODEL", "base_model", "max"), top=1),
        LAST_STEP,
        Panel("Last sign of life", "Time since a worker last gave a sign of life.", "s",
              gauge("tuft_worker_heartbeat_age_seconds", "MODEL", "base_model", "max"),
              steps=((15, YELLOW), (30, RED))),
        Panel("Restarts", "In the last hour.", "none",
              [("sum by (base_model) (increase(tuft_worker_restarts_total{MODEL}[1h]))", "{{base_model}}")]),
        Panel("Calls to workers", "95th percentile, by method.", "s",
              quantiles("tuft_worker_rpc_duration_seconds", "SERVER", "method", "{{method}}", (0.95,))),
        Panel("Start of a worker", "Mean of each phase.", "s",
              [("sum by (phase) (tuft_worker_startup_duration_seconds_sum{MODEL}) / sum by (phase) "
              "(tuft_worker_startup_duration_seconds_count{MODEL})", "{{phase}}")])]),
    ("Persistence", [
        Panel("Store operations", "95th percentile.", "s",
              quantiles("db_client_operation_duration_seconds", "SERVER", "db_operation_name",
              "{{db_operation_name}}", (0.95,))),
        Panel("Redis", "Mean of an operation; empty with another store.", "s",
              mean("tuft_redis_operation_duration_seconds", "SERVER", "operation")),
        Panel("Store errors and slow operations", "Slow: over 100 ms.", "ops",
              [("sum by (operation, reason) (rate(tuft_store_errors_total{SERVER}[RANGE]))",
              "{{operation}} {{reason}}"),
               ("sum by (operation) (rate(tuft_store_slow_ops_total{SERVER}[RANGE]))", "{{operation}} slow")])])])

TELEMETRY = dashboard("tuft-telemetry-health", "tuft / Telemetry health",
"Does what is recorded arrive, and what does recording cost.", [
    ("Export", [
        Panel("Exported", "Records given to the exporter, by signal and outcome.", "ops",
              rate("tuft_telemetry_exported_total", "SERVER", "signal, outcome")),
        Panel("Lost", "Before export, by signal and reason. Anything above 0 needs a look.", "ops",
              rate("tuft_telemetry_dropped_total", "SERVER", "signal, reason"), steps=((0.001, RED),)),
        Panel("Last success", "Time since an export last succeeded, of any process; 0 while nothing waits.", "s",
              gauge("tuft_telemetry_export_last_success_age_seconds", "SERVER", "signal", "max"), steps=((120,
              YELLOW), (300, RED))),
        Panel("Duration of an export", "95th percentile of attempts, by signal.", "s",
              quantiles("otel_sdk_exporter_operation_duration_seconds", "SERVER", "signal", "{{signal}}", (0.95,))),
        Panel("Tried again", "Exports after a failed attempt.", "ops", rate("tuft_telemetry_retries_total", "SERVER",
              "signal")),
        Panel("Refused by the collector", "It took the rest (partial success).", "ops",
              rate("tuft_telemetry_rejected_total", "SERVER", "signal"))]),
    ("Queues", [
        Panel("Waiting for the exporter", "Share of the queue's capacity.", "percentunit",
              [("max by (worker) (otel_sdk_processor_span_queue_size{SERVER} / "
              "otel_sdk_processor_span_queue_capacity{SERVER})", "{{worker}} spans"),
               ("max by (worker) (otel_sdk_processor_log_queue_size{SERVER} / "
               "otel_sdk_processor_log_queue_capacity{SERVER})", "{{worker}} logs")], top=1),
        Panel("Fullest ring", "Of any recording thread, since the last collection.", "percentunit",
              gauge("tuft_telemetry_ring_high_water_ratio", "SERVER", "instance, worker", "max"), steps=((0.8,
              YELLOW),), top=1),
        Panel("Spans", "Started, by what sampling said.", "ops", rate("otel_sdk_span_started_total", "SERVER",
              "otel_span_sampling_result")),
        Panel("Spans not ended", "It falls to 0 when nothing runs.", "none", gauge("otel_sdk_span_live", "SERVER",
              "instance, worker")),
        Panel("Left out by sampling", "By reason; hold_full: the tail sampler's memory was full.", "ops",
              rate("tuft_telemetry_sampled_out_total", "SERVER", "reason")),
        Panel("Log records suppressed", "By rate limits, by event.", "ops",
              rate("tuft_telemetry_log_suppressed_total", "SERVER", "event")),
        Panel("Left the embedded store", "By signal and reason. age, bytes: its limits; thinning: room for users with "
              "few records; corrupt: a damaged file.", "ops",
              rate("tuft_telemetry_store_removed_total", "SERVER", "signal, reason"))]),
    ("Cost and hygiene", [
        Panel("Processor time of telemetry", "Cores.", "none", rate("tuft_telemetry_thread_cpu_seconds_total",
              "SERVER", "instance, worker"), stack=True),
        Panel("Series", "Of all instruments.", "none", gauge("tuft_telemetry_series", "SERVER", "instance, worker")),
        Panel("Collecting metrics", "95th percentile.", "s",
              quantiles("otel_sdk_metric_reader_collection_duration_seconds", "SERVER", points=(0.95,))),
        Panel("Scrape", "Seconds and samples of a scrape by Prometheus.", "s",
              [('scrape_duration_seconds{SERVER} and on (instance) tuft_build_info{worker=""}', "{{instance}}")]),
        Panel("Label sets over the limit", "By instrument; their records share one series.", "ops",
              rate("tuft_telemetry_series_overflowed_total", "SERVER", "instrument")),
        Panel("Values and headers refused", "Not finite, by instrument; trace context that could not be read, by "
              "header.", "ops",
              rate("tuft_telemetry_nonfinite_total", "SERVER", "instrument") +
              [("sum by (header) (rate(tuft_telemetry_context_malformed_total{SERVER}[RANGE]))", "{{header}}")])])])

DASHBOARDS = [OVERVIEW, SAMPLING, TRAINING, TENANTS, RESOURCES, TELEMETRY, TRACES]


def main():
    stale = []
    for one in DASHBOARDS:
        path = HERE / ("tempo" if one is TRACES else "") / (one["uid"].removeprefix("tuft-") + ".json")
        text = json.dumps(one, indent=1, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"Run {pathlib.Path(__file__).name}: {', '.join(stale)} differ from it")


if __name__ == "__main__":
    main()
