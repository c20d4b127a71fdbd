// Steps of the engine, its KV cache and its adapters. Part of Metrics.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry {

struct EngineInstruments {
  ObservableGauge scheduler_requests{{.name = "tuft.scheduler.requests",
                                      .unit = "{request}",
                                      .description = "Requests in the engine, by state (running, waiting)",
                                      .labels = {"base_model", "state"},
                                      .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_queue_duration{{.name = "tuft.scheduler.queue.duration",
                                      .unit = "s",
                                      .description = "From arrival in the worker to the first step (train, sample)",
                                      .labels = {"base_model", "kind"},
                                      .bounds = bounds_wait(),
                                      .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_step_duration{{.name = "tuft.scheduler.step.duration",
                                     .unit = "s",
                                     .description = "One step of the engine, by phase (train, prefill, decode, mixed)",
                                     .labels = {"base_model", "phase"},
                                     .bounds = bounds_step(),
                                     .recorded_by = RecordedBy::kWorker}};
  Histogram scheduler_step_overhead{
      {.name = "tuft.scheduler.step.overhead",
       .unit = "s",
       .description = "Time of the engine thread between two sampling steps that follow each other",
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
                                 .description = "Sequences that gave their blocks of the full KV cache back",
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
                              .description = "Cached blocks that were given up because others needed the place",
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
                                .description = "Bringing an adapter into the engine (disk, new)",
                                .labels = {"base_model", "source"},
                                .bounds = bounds_operation(),
                                .recorded_by = RecordedBy::kWorker}};
};

}  // namespace tuft::telemetry
