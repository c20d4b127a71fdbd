// The continuous-batching metrics of Transformers, with its names, units and buckets and without labels, so that its
// dashboard works unchanged.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

inline constexpr std::string_view kTransformersScope = "transformers.generation.continuous_batch_processor";

struct ContinuousBatchingMetrics {
  Histogram ttft_milliseconds{{.name = "ttft_milliseconds",
                               .unit = "ms",
                               .description = "From a request's arrival in the worker to its first token",
                               .bounds = bounds_ttft_milliseconds(),
                               .recorded_by = RecordedBy::kWorker,
                               .scope = kTransformersScope}};
  Gauge active_requests_count{{.name = "active_requests_count",
                               .unit = "requests",
                               .description = "Requests in the current step",
                               .recorded_by = RecordedBy::kWorker,
                               .scope = kTransformersScope}};
  Gauge waiting_requests_count{{.name = "waiting_requests_count",
                                .unit = "requests",
                                .description = "Requests that wait to enter a step",
                                .recorded_by = RecordedBy::kWorker,
                                .scope = kTransformersScope}};
  Histogram request_latency_milliseconds{
      {.name = "request_latency_milliseconds",
       .unit = "ms",
       .description = "From a request's arrival in the worker to its end, failures included",
       .bounds = bounds_latency_milliseconds(),
       .recorded_by = RecordedBy::kWorker,
       .scope = kTransformersScope}};
  Gauge decode_prefill_ratio{
      {.name = "decode_prefill_ratio",
       .unit = "ratio",
       .description = "Decode tokens over prefill tokens of the newest step with prefill; absent before the first",
       .recorded_by = RecordedBy::kWorker,
       .scope = kTransformersScope}};
  Counter prefill_tokens_processed{{.name = "prefill_tokens_processed",
                                    .unit = "tokens",
                                    .description = "Prompt tokens computed",
                                    .recorded_by = RecordedBy::kWorker,
                                    .scope = kTransformersScope}};
  Counter decode_tokens_processed{{.name = "decode_tokens_processed",
                                   .unit = "tokens",
                                   .description = "Output tokens computed",
                                   .recorded_by = RecordedBy::kWorker,
                                   .scope = kTransformersScope}};
  Histogram batch_fill_percentage{{.name = "batch_fill_percentage",
                                   .unit = "percent",
                                   .description = "Tokens of a step over its token budget",
                                   .bounds = bounds_percent(),
                                   .recorded_by = RecordedBy::kWorker,
                                   .scope = kTransformersScope}};
  Gauge kv_cache_free_memory_bytes{{.name = "kv_cache_free_memory_bytes",
                                    .unit = "bytes",
                                    .description = "KV cache that is free",
                                    .recorded_by = RecordedBy::kWorker,
                                    .scope = kTransformersScope}};
  Gauge kv_cache_memory_bytes{{.name = "kv_cache_memory_bytes",
                               .unit = "bytes",
                               .description = "KV cache in use",
                               .recorded_by = RecordedBy::kWorker,
                               .scope = kTransformersScope}};
};

const ContinuousBatchingMetrics& continuous_batching();

}  // namespace tuft::metrics
