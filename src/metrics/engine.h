// Metrics of the engine: its scheduler's steps, its KV cache, its adapters and its device.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct EngineMetrics {
  ObservableGauge scheduler_requests{{.name = "tuft.scheduler.requests",
                                      .unit = "{request}",
                                      .description = "Requests in the engine, by state (running, waiting)",
                                      .labels = {"base_model", "state"},
                                      .recorded_by = RecordedBy::kWorker}};
  ObservableGauge scheduler_samples{{.name = "tuft.scheduler.samples",
                                     .unit = "{request}",
                                     .description = "Sample requests, by state (pending, prefilling, decoding)",
                                     .labels = {"base_model", "state"},
                                     .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_queue_duration{{.name = "tuft.scheduler.queue.duration",
                                      .unit = "s",
                                      .description = "From arrival in the worker to the first step (train, sample)",
                                      .labels = {"base_model", "kind"},
                                      .bounds = bounds_wait(),
                                      .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_step_duration{
      {.name = "tuft.scheduler.step.duration",
       .unit = "s",
       .description = "One step of the engine, by phase (train, optim, prefill, decode, mixed)",
       .labels = {"base_model", "phase"},
       .bounds = bounds_step(),
       .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_step_overhead{{.name = "tuft.scheduler.step.overhead",
                                     .unit = "s",
                                     .description = "Time of the engine thread between two consecutive sampling steps",
                                     .labels = {"base_model"},
                                     .bounds = bounds_step(),
                                     .recorded_by = RecordedBy::kWorker}};
  Counter scheduler_steps{{.name = "tuft.scheduler.steps",
                           .unit = "{step}",
                           .description = "Steps of the engine, by phase",
                           .labels = {"base_model", "phase"},
                           .recorded_by = RecordedBy::kWorker}};
  ObservableGauge scheduler_last_step_age{
      {.name = "tuft.scheduler.last_step.age",
       .unit = "s",
       .description = "Time since the newest step while there is work; 0 while idle",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_batch_requests{{.name = "tuft.scheduler.batch.requests",
                                      .unit = "{sequence}",
                                      .description = "Sequences in one step",
                                      .labels = {"base_model", "phase"},
                                      .bounds = bounds_count(),
                                      .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_batch_tokens{{.name = "tuft.scheduler.batch.tokens",
                                    .unit = "{token}",
                                    .description = "Tokens in one step",
                                    .labels = {"base_model"},
                                    .bounds = bounds_tokens(),
                                    .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_batch_fill{{.name = "tuft.scheduler.batch.fill",
                                  .unit = "1",
                                  .description = "Tokens of a sampling step over its token budget",
                                  .labels = {"base_model"},
                                  .bounds = bounds_fraction(),
                                  .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_batch_adapters{{.name = "tuft.scheduler.batch.adapters",
                                      .unit = "{adapter}",
                                      .description = "Distinct adapters in one sampling step or training pass",
                                      .labels = {"base_model"},
                                      .bounds = bounds_count(),
                                      .recorded_by = RecordedBy::kWorker}};
  Counter scheduler_rejections{{.name = "tuft.scheduler.admission.rejections",
                                .unit = "{request}",
                                .description = "Requests that the engine refused, by reason",
                                .labels = {"base_model", "reason"},
                                .recorded_by = RecordedBy::kWorker}};
  Counter scheduler_preemptions{{.name = "tuft.scheduler.preemptions",
                                 .unit = "{sequence}",
                                 .description = "Sequences that released their blocks of the full KV cache",
                                 .labels = {"base_model"},
                                 .recorded_by = RecordedBy::kWorker}};
  Counter scheduler_recomputed_tokens{{.name = "tuft.scheduler.preempted.tokens",
                                       .unit = "{token}",
                                       .description = "Tokens computed again after a preemption",
                                       .labels = {"base_model"},
                                       .recorded_by = RecordedBy::kWorker}};
  Counter prefix_cache_queries{{.name = "tuft.prefix_cache.queries",
                                .unit = "{token}",
                                .description = "Prompt tokens that could be in the prefix cache",
                                .labels = {"base_model"},
                                .recorded_by = RecordedBy::kWorker}};
  Counter prefix_cache_hits{{.name = "tuft.prefix_cache.hits",
                             .unit = "{token}",
                             .description = "Prompt tokens that were in the prefix cache and not computed",
                             .labels = {"base_model"},
                             .recorded_by = RecordedBy::kWorker}};
  Counter kv_cache_evictions{{.name = "tuft.kv_cache.evictions",
                              .unit = "{block}",
                              .description = "Cached blocks that were evicted because others needed their place",
                              .labels = {"base_model"},
                              .recorded_by = RecordedBy::kWorker}};
  ObservableGauge kv_cache_usage{{.name = "tuft.kv_cache.usage",
                                  .unit = "1",
                                  .description = "Share of the KV cache's limit that sequences hold",
                                  .labels = {"base_model"},
                                  .recorded_by = RecordedBy::kWorker}};
  ObservableGauge kv_cache_blocks{{.name = "tuft.kv_cache.blocks",
                                   .unit = "{block}",
                                   .description = "Blocks of the KV cache (used, cached, free)",
                                   .labels = {"base_model", "state"},
                                   .recorded_by = RecordedBy::kWorker}};
  ObservableGauge kv_cache_memory{{.name = "tuft.kv_cache.memory",
                                   .unit = "By",
                                   .description = "Memory of the KV cache (used, cached, limit)",
                                   .labels = {"base_model", "state"},
                                   .recorded_by = RecordedBy::kWorker}};
  ObservableGauge lora_adapters{{.name = "tuft.lora.adapters",
                                 .unit = "{adapter}",
                                 .description = "Adapters in the engine, by kind (training, sampler)",
                                 .labels = {"base_model", "kind"},
                                 .recorded_by = RecordedBy::kWorker}};
  ObservableGauge lora_memory{{.name = "tuft.lora.memory",
                               .unit = "By",
                               .description = "Memory of adapters (weights, optimizer, gradients)",
                               .labels = {"base_model", "part"},
                               .recorded_by = RecordedBy::kWorker}};
  Histogram lora_load_duration{{.name = "tuft.lora.load.duration",
                                .unit = "s",
                                .description = "Time to load or create an adapter in the engine (disk, new)",
                                .labels = {"base_model", "source"},
                                .bounds = bounds_operation(),
                                .recorded_by = RecordedBy::kWorker}};
  ObservableGauge lora_adapters_paged{{.name = "tuft.lora.adapters.paged",
                                       .unit = "{adapter}",
                                       .description = "Adapters that wait in page files, by kind (training, sampler)",
                                       .labels = {"base_model", "kind"},
                                       .recorded_by = RecordedBy::kWorker}};
  ObservableGauge lora_adapters_waiting{
      {.name = "tuft.lora.adapters.waiting",
       .unit = "{adapter}",
       .description = "Adapters that are needed and wait for room in the engine, by kind (training, sampler)",
       .labels = {"base_model", "kind"},
       .recorded_by = RecordedBy::kWorker}};
  ObservableGauge lora_pool_memory{{.name = "tuft.lora.pool.memory",
                                    .unit = "By",
                                    .description = "Memory reserved for adapters in the engine (reserved, limit)",
                                    .labels = {"base_model", "state"},
                                    .recorded_by = RecordedBy::kWorker}};
  Histogram lora_publish_duration{
      {.name = "tuft.lora.publish.duration",
       .unit = "s",
       .description = "Time to copy an adapter's weights for sampling, without the wait before it",
       .labels = {"base_model"},
       .bounds = bounds_operation(),
       .recorded_by = RecordedBy::kWorker}};
  Histogram lora_page_duration{
      {.name = "tuft.lora.page.duration",
       .unit = "s",
       .description = "Time to move an adapter to its page file or back (out, in), by result (ok, failed, dropped: it "
                      "was removed before its page was written)",
       .labels = {"base_model", "direction", "result"},
       .bounds = bounds_operation(),
       .recorded_by = RecordedBy::kWorker}};
  Counter lora_page_io{{.name = "tuft.lora.page.io",
                        .unit = "By",
                        .description = "Bytes of adapters written to page files and read from them (out, in)",
                        .labels = {"base_model", "direction"},
                        .recorded_by = RecordedBy::kWorker}};
  Counter lora_page_failures{{.name = "tuft.lora.page.failures",
                              .unit = "{page}",
                              .description = "Pages that could not be written or read (out, in)",
                              .labels = {"base_model", "direction"},
                              .recorded_by = RecordedBy::kWorker}};
  ObservableGauge lora_page_pending{
      {.name = "tuft.lora.page.pending",
       .unit = "By",
       .description = "Memory of adapters that have left the engine and whose page is not written yet",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
  ObservableGauge scheduler_fairness_deficit{
      {.name = "tuft.scheduler.fairness.deficit.max",
       .unit = "{token}",
       .description =
           "Most tokens that an adapter in training is behind those it shares the passes with; 0 while none waits",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
  ObservableGauge kv_cache_fragmentation{
      {.name = "tuft.kv_cache.fragmentation",
       .unit = "1",
       .description = "Share of the KV cache in use that holds no token: the ends of sequences",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
  Counter kv_cache_alloc_failures{
      {.name = "tuft.kv_cache.alloc_failures",
       .unit = "{step}",
       .description = "Steps in which a sequence waited or was preempted because the KV cache was full",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
  Histogram kv_block_lifetime{
      {.name = "tuft.kv_cache.block.lifetime",
       .unit = "s",
       .description = "Time from a block's first use until its content is evicted; one block in 64",
       .labels = {"base_model"},
       .bounds = bounds_wait(),
       .recorded_by = RecordedBy::kWorker}};
  Histogram kv_block_idle{{.name = "tuft.kv_cache.block.idle",
                           .unit = "s",
                           .description = "Time since a cached block's last use when it was evicted; one block in 64",
                           .labels = {"base_model"},
                           .bounds = bounds_wait(),
                           .recorded_by = RecordedBy::kWorker}};
  Histogram kv_block_reuse_gap{
      {.name = "tuft.kv_cache.block.reuse_gap",
       .unit = "s",
       .description = "Time since a cached block's last use when a prompt reused it; one block in 64",
       .labels = {"base_model"},
       .bounds = bounds_wait(),
       .recorded_by = RecordedBy::kWorker}};
  Counter lora_lookups{{.name = "tuft.lora.cache.lookups",
                        .unit = "{request}",
                        .description = "Requests that needed an adapter, by its kind (training, sampler)",
                        .labels = {"base_model", "kind"},
                        .recorded_by = RecordedBy::kWorker}};
  Counter lora_hits{{.name = "tuft.lora.cache.hits",
                     .unit = "{request}",
                     .description = "Requests that found their adapter in the engine; the others wait for its page",
                     .labels = {"base_model", "kind"},
                     .recorded_by = RecordedBy::kWorker}};
  Counter lora_evictions{{.name = "tuft.lora.evictions",
                          .unit = "{adapter}",
                          .description = "Adapters that left the engine because others needed the memory, by kind",
                          .labels = {"base_model", "kind"},
                          .recorded_by = RecordedBy::kWorker}};
  ObservableGauge lora_waiting{
      {.name = "tuft.lora.requests.waiting_for_adapter",
       .unit = "{request}",
       .description = "Samples and runs that wait while their adapter is brought back from its page, or yields",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
  ObservableCounter device_time{{.name = "tuft.device.time",
                                 .unit = "s",
                                 .description = "Time that work took on the device (forward, backward, optim, step), "
                                                "where it runs beside the engine thread: on GPUs",
                                 .labels = {"base_model", "work"},
                                 .recorded_by = RecordedBy::kWorker}};
  ObservableGauge device_peak_flops{
      {.name = "tuft.device.peak_flops",
       .unit = "{flop}/s",
       .description = "What the device can do at most, dense: of a CPU measured at the start of the worker, of a known "
                      "GPU as its maker says; absent where nothing is known",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
};

const EngineMetrics& engine();

}  // namespace tuft::metrics
