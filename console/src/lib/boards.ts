// The panels that come with the console. Their questions are those of the dashboards in deploy/grafana.

import type { MetricFunction } from "../api/types.ts";
import type { Board, Query } from "./panels.ts";

const one = (metric: string, fn?: MetricFunction, by: string[] = [], label?: string): Query => ({
  metric,
  ...(fn ? { fn } : {}),
  by,
  ...(label ? { label } : {}),
});
/** The largest of the processes that report it. */
const worst = (metric: string, fn: MetricFunction, by: string[] = []): Query => ({
  ...one(metric, fn, by),
  fold: { over: ["worker"], by: "max" },
});
const quantiles = (metric: string, points: MetricFunction[] = ["p50", "p95", "p99"]): Query[] =>
  points.map((fn) => one(metric, fn, [], fn));

export const boards: Board[] = [
  {
    id: "training",
    title: "Training",
    panels: [
      {
        id: "training-throughput",
        title: "Training throughput P50 by base model",
        about: "Half of the forward_backward and forward requests were faster than this.",
        queries: [one("tuft.training.tokens_per_second", "p50", ["base_model"])],
      },
      {
        id: "training-tokens",
        title: "Training tokens",
        about: "What all training passes processed.",
        queries: [one("tuft.training.tokens", "rate", ["kind"])],
        kind: "stack",
      },
      {
        id: "training-steps",
        title: "Optimizer steps",
        queries: [one("tuft.training.optim_steps", "rate", ["base_model"])],
      },
      {
        id: "training-phases",
        title: "Phases of a training step (p95)",
        about: "What a step's time consists of: waiting, packing, forward, loss, backward, optimizer.",
        queries: [one("tuft.training.step.duration", "p95", ["phase"])],
      },
      {
        id: "training-loss",
        title: "Loss",
        about: "Mean loss per weighted token of all runs. The curve of one run is on its page.",
        queries: [one("tuft.training.loss", "mean_value", ["base_model"])],
        plain: true,
      },
      {
        id: "training-grad-norm",
        title: "Gradient norm",
        queries: quantiles("tuft.training.grad_norm", ["p50", "p95"]),
        plain: true,
      },
      {
        id: "training-shared",
        title: "Requests in one training pass",
        about: "How many requests share a pass; more means better use of the device.",
        queries: [
          one("tuft.training.batch.requests", "p50", [], "p50"),
          one("tuft.training.batch.requests", "p95", [], "p95"),
        ],
      },
      {
        id: "training-fill",
        title: "Fill of training passes",
        queries: [one("tuft.training.batch.fill", "p50", [], "p50"), one("tuft.training.batch.fill", "p95", [], "p95")],
      },
      {
        id: "training-mfu",
        title: "Utilization of the device (MFU)",
        about: "Useful arithmetic over what the device could have done, while passes ran.",
        queries: [
          one("tuft.training.mfu", "last", ["worker"], "training"),
          one("tuft.sampling.mfu", "last", ["worker"], "sampling"),
        ],
        yMax: 1,
      },
    ],
  },
  {
    id: "sampling",
    title: "Sampling",
    panels: [
      {
        id: "sampling-qps",
        title: "Sampling rate",
        about: "Sampling requests that ended, in a second.",
        queries: [one("tuft.sampling.requests", "rate", ["base_model", "status"])],
      },
      {
        id: "sampling-tokens",
        title: "Prefill and decode tokens",
        queries: [
          one("prefill_tokens_processed", "rate", [], "prefill"),
          one("decode_tokens_processed", "rate", [], "decode"),
        ],
      },
      {
        id: "sampling-ttft",
        title: "Time to first token",
        queries: quantiles("gen_ai.server.time_to_first_token"),
      },
      {
        id: "sampling-tpot",
        title: "Time per output token",
        queries: quantiles("gen_ai.server.time_per_output_token"),
      },
      {
        id: "sampling-duration",
        title: "Sampling requests, from acceptance to the last token",
        queries: quantiles("gen_ai.server.request.duration"),
      },
      {
        id: "sampling-states",
        title: "Samples by state",
        about: "Pending, prefilling and decoding requests in the engine.",
        queries: [one("tuft.scheduler.samples", "last", ["state"])],
        kind: "stack",
      },
      {
        id: "sampling-prefix",
        title: "Prompt tokens found in the prefix cache",
        queries: [
          {
            metric: "tuft.prefix_cache.hits",
            fn: "rate",
            by: ["base_model"],
            over: { metric: "tuft.prefix_cache.queries", fn: "rate", by: ["base_model"] },
          },
        ],
        unit: "1",
        yMax: 1,
      },
      {
        id: "sampling-finished",
        title: "Sequences that ended, by reason",
        queries: [one("tuft.sampling.finished", "rate", ["finish_reason"])],
        kind: "stack",
      },
      {
        id: "sampling-preemptions",
        title: "Preemptions",
        about: "Sequences that gave their blocks of a full KV cache back and are computed again.",
        queries: [one("tuft.scheduler.preemptions", "rate", ["base_model"])],
      },
    ],
  },
  {
    id: "batching",
    title: "Continuous batching",
    panels: [
      { id: "cb-active", title: "Active requests", queries: [one("active_requests_count", "last", ["worker"])] },
      { id: "cb-waiting", title: "Waiting requests", queries: [one("waiting_requests_count", "last", ["worker"])] },
      { id: "cb-ttft", title: "Time to first token", queries: quantiles("ttft_milliseconds", ["p50", "p95"]) },
      {
        id: "cb-latency",
        title: "Request latency",
        queries: quantiles("request_latency_milliseconds", ["p50", "p95"]),
      },
      { id: "cb-fill", title: "Batch fill", queries: quantiles("batch_fill_percentage", ["p50", "p95"]), yMax: 100 },
      {
        id: "cb-ratio",
        title: "Decode tokens over prefill tokens",
        queries: [one("decode_prefill_ratio", "last", ["worker"])],
        plain: true,
      },
      { id: "cb-prefill", title: "Prefill tokens", queries: [one("prefill_tokens_processed", "rate", ["worker"])] },
      { id: "cb-decode", title: "Decode tokens", queries: [one("decode_tokens_processed", "rate", ["worker"])] },
      {
        id: "cb-kv",
        title: "KV cache in use",
        queries: [one("kv_cache_memory_bytes", "last", ["worker"])],
        kind: "area",
      },
      {
        id: "cb-kv-free",
        title: "KV cache free",
        queries: [one("kv_cache_free_memory_bytes", "last", ["worker"])],
        kind: "area",
      },
    ],
  },
  {
    id: "queue",
    title: "Operations",
    panels: [
      {
        id: "queue-waiting",
        title: "Operations that wait for their user's turn",
        queries: [one("tuft.dispatch.waiting", "last", ["kind"])],
        kind: "stack",
      },
      {
        id: "queue-length",
        title: "Operations in flight",
        queries: [one("tuft.futures.queue_length", "last", ["queue_state"])],
        kind: "stack",
      },
      {
        id: "queue-wait",
        title: "Waiting until a worker starts (p95)",
        queries: [one("tuft.futures.wait_time", "p95", ["operation_type"])],
      },
      {
        id: "queue-run",
        title: "Running (p95)",
        queries: [one("tuft.futures.execution_time", "p95", ["operation_type"])],
      },
      {
        id: "queue-ended",
        title: "Operations that ended",
        queries: [one("tuft.requests.terminal", "rate", ["operation_type", "status"])],
      },
      {
        id: "queue-failed",
        title: "Share of operations that failed",
        queries: [
          {
            metric: "tuft.requests.terminal",
            fn: "rate",
            where: { status: "failed" },
            label: "failed",
            over: { metric: "tuft.requests.terminal", fn: "rate" },
          },
        ],
        unit: "1",
      },
      { id: "queue-oldest", title: "Oldest operation", queries: [one("tuft.futures.oldest_age", "max", ["state"])] },
      {
        id: "queue-sequence",
        title: "Waiting for an earlier operation of the run (p95)",
        queries: [one("tuft.sequence_guard.wait.duration", "p95", ["operation_type"])],
      },
      {
        id: "queue-quota",
        title: "Refused because a user was at a limit",
        queries: [one("tuft.quota.refusals", "rate", ["limit"])],
      },
    ],
  },
  {
    id: "adapters",
    title: "Adapters and KV cache",
    panels: [
      {
        id: "lora-resident",
        title: "Adapters in the engine",
        queries: [one("tuft.lora.adapters", "last", ["base_model", "kind"])],
      },
      {
        id: "lora-paged",
        title: "Adapters in page files",
        queries: [one("tuft.lora.adapters.paged", "last", ["base_model", "kind"])],
      },
      {
        id: "lora-hits",
        title: "Requests that found their adapter in the engine",
        queries: [
          {
            metric: "tuft.lora.cache.hits",
            fn: "rate",
            by: ["kind"],
            over: { metric: "tuft.lora.cache.lookups", fn: "rate", by: ["kind"] },
          },
        ],
        unit: "1",
        yMax: 1,
      },
      {
        id: "lora-pages",
        title: "Moving an adapter to its page or back (p95)",
        queries: [one("tuft.lora.page.duration", "p95", ["direction"])],
      },
      {
        id: "lora-memory",
        title: "Memory of adapters",
        queries: [one("tuft.lora.memory", "last", ["part"])],
        kind: "stack",
      },
      {
        id: "kv-usage",
        title: "KV cache that sequences hold",
        queries: [one("tuft.kv_cache.usage", "last", ["worker"])],
        yMax: 1,
      },
      {
        id: "kv-blocks",
        title: "Blocks of the KV cache",
        queries: [one("tuft.kv_cache.blocks", "last", ["state"])],
        kind: "stack",
      },
      {
        id: "kv-failures",
        title: "Steps that found the KV cache full",
        queries: [one("tuft.kv_cache.alloc_failures", "rate", ["base_model"])],
      },
      {
        id: "steps",
        title: "Steps of the engine by phase (p95)",
        queries: [one("tuft.scheduler.step.duration", "p95", ["phase"])],
      },
    ],
  },
  {
    id: "machine",
    title: "Machine",
    panels: [
      { id: "cpu", title: "Processors", queries: [one("system.cpu.utilization", "mean")], yMax: 1, kind: "area" },
      {
        id: "memory",
        title: "Memory",
        queries: [one("system.memory.usage", "last", ["system.memory.state"])],
        kind: "stack",
      },
      {
        id: "gpu",
        title: "GPUs",
        queries: [worst("tuft.resource.gpu.utilization_percent", "last", ["gpu_id"])],
        yMax: 100,
      },
      {
        id: "gpu-memory",
        title: "Memory of GPUs",
        queries: [worst("tuft.resource.gpu.memory_used_bytes", "last", ["gpu_id"])],
      },
      {
        id: "busy",
        title: "Busy share of the engine thread",
        queries: [one("tuft.worker.busy", "last", ["worker"])],
        yMax: 1,
      },
      {
        id: "process-cpu",
        title: "Processors in use by each process",
        queries: [one("process.cpu.time", "rate", ["worker"])],
      },
      {
        id: "process-memory",
        title: "Memory of each process",
        queries: [one("process.memory.usage", "last", ["worker"])],
      },
      { id: "disk", title: "Disks", queries: [one("system.disk.io", "rate", ["disk.io.direction"])] },
      { id: "network", title: "Network", queries: [one("system.network.io", "rate", ["network.io.direction"])] },
    ],
  },
  {
    id: "telemetry",
    title: "Telemetry",
    panels: [
      {
        id: "t-spans",
        title: "Spans recorded",
        queries: [one("otel.sdk.span.started", "rate", ["otel.span.sampling_result"])],
      },
      {
        id: "t-dropped",
        title: "Records lost before export",
        queries: [one("tuft.telemetry.dropped", "rate", ["signal", "reason"])],
      },
      {
        id: "t-exported",
        title: "Records exported",
        queries: [one("tuft.telemetry.exported", "rate", ["signal", "outcome"])],
      },
      {
        id: "t-age",
        title: "Time without a successful export",
        queries: [worst("tuft.telemetry.export.last_success.age", "max", ["signal"])],
      },
      {
        id: "t-ring",
        title: "Highest fill of a thread's ring",
        queries: [worst("tuft.telemetry.ring.high_water", "max")],
        yMax: 1,
      },
      { id: "t-cpu", title: "Processors that telemetry uses", queries: [one("tuft.telemetry.thread.cpu", "rate")] },
      { id: "t-series", title: "Series of all instruments", queries: [one("tuft.telemetry.series", "last")] },
      {
        id: "t-queue",
        title: "Spans that wait for the exporter",
        queries: [one("otel.sdk.processor.span.queue.size", "last")],
      },
      {
        id: "t-suppressed",
        title: "Log lines over the limit",
        queries: [one("tuft.telemetry.log_suppressed", "rate", ["event"])],
      },
      {
        id: "t-removed",
        title: "Records that left the telemetry store",
        about: "Age and bytes are the limits of the store, thinning makes room for users with few records.",
        queries: [one("tuft.telemetry_store.removed", "rate", ["signal", "reason"])],
      },
    ],
  },
];

/** A board's panel by its id. */
export const findPanel = (id: string) => boards.flatMap((board) => board.panels).find((panel) => panel.id === id);
