// Metrics of training runs, their steps and their checkpoints.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct TrainingMetrics {
  UpDownCounter models_active{{.name = "tuft.training.models.active",
                               .unit = "",
                               .description = "Adapters that are being trained",
                               .labels = {"base_model"}}};
  ObservableGauge runs{{.name = "tuft.training.runs",
                        .unit = "{run}",
                        .description = "Training runs, by state (active, idle, restoring, corrupted)",
                        .labels = {"base_model", "state"}}};
  Counter run_moves{{.name = "tuft.training.run.moves",
                     .unit = "{move}",
                     .description = "Runs that went to another worker of their base model (lost, drained, balanced)",
                     .labels = {"base_model", "reason"}}};
  Counter run_resumes{{.name = "tuft.training.run.resumes",
                       .unit = "{run}",
                       .description = "Runs whose adapters a worker held when it joined again: they went on with them "
                                      "(kept), or not (given_up)",
                       .labels = {"base_model", "result"}}};
  Counter run_replays{{.name = "tuft.training.run.replays",
                       .unit = "{run}",
                       .description =
                           "Runs of a lost worker whose passes and steps since their restore point were made "
                           "again (replicate: true): all of them (done), or not (failed)",
                       .labels = {"base_model", "result"}}};
  ObservableGauge journal_bytes{{.name = "tuft.training.journal_bytes",
                                 .unit = "By",
                                 .description = "Passes and steps that are kept to be made again (replicate: true)",
                                 .labels = {"base_model"}}};
  Histogram tokens_per_second{{.name = "tuft.training.tokens_per_second",
                               .unit = "tokens/s",
                               .description = "Input tokens of a forward or forward_backward over its whole time",
                               .labels = {"base_model"},
                               .bounds = bounds_tokens_per_second()}};
  Counter tokens{{.name = "tuft.training.tokens",
                  .unit = "{token}",
                  .description = "Tokens processed by training passes (forward, forward_backward)",
                  .labels = {"base_model", "kind"}}};
  Counter checkpoints_saved{{.name = "tuft.training.checkpoints.saved",
                             .unit = "",
                             .description = "Checkpoints saved (training, sampler, external)",
                             .labels = {"checkpoint_type"}}};
  Histogram checkpoint_size_bytes{{.name = "tuft.training.checkpoint.size_bytes",
                                   .unit = "bytes",
                                   .description = "Size of a saved checkpoint",
                                   .labels = {"checkpoint_type"},
                                   .bounds = bounds_bytes()}};
  Histogram step_duration{{.name = "tuft.training.step.duration",
                           .unit = "s",
                           .description = "Phases of a training step (queue, pack, forward, loss, backward, optim)",
                           .labels = {"base_model", "phase"},
                           .bounds = bounds_request()}};
  Histogram passes{{.name = "tuft.training.micro_batches",
                    .unit = "{pass}",
                    .description = "Passes that one request was split into",
                    .labels = {"base_model"},
                    .bounds = bounds_count(),
                    .recorded_by = RecordedBy::kWorker}};
  Histogram batch_requests{{.name = "tuft.training.batch.requests",
                            .unit = "{request}",
                            .description = "Requests in one training pass",
                            .labels = {"base_model"},
                            .bounds = bounds_count(),
                            .recorded_by = RecordedBy::kWorker}};
  Histogram batch_runs{{.name = "tuft.training.batch.runs",
                        .unit = "{run}",
                        .description = "Runs in one training pass or one step of the optimizer (train, optim)",
                        .labels = {"base_model", "phase"},
                        .bounds = bounds_count(),
                        .recorded_by = RecordedBy::kWorker}};
  Histogram batch_fill{{.name = "tuft.training.batch.fill",
                        .unit = "1",
                        .description = "Tokens of a training pass over its token budget (over 1: a datum that "
                                       "is longer than it). Sequences are packed without padding",
                        .labels = {"base_model"},
                        .bounds = bounds_fraction(),
                        .recorded_by = RecordedBy::kWorker}};
  Histogram loss{{.name = "tuft.training.loss",
                  .unit = "1",
                  .description = "Mean loss of a forward_backward per weighted token",
                  .labels = {"base_model", "loss_fn"},
                  .bounds = bounds_loss()}};
  Histogram grad_norm{{.name = "tuft.training.grad_norm",
                       .unit = "1",
                       .description = "Norm of the gradient before clipping",
                       .labels = {"base_model"},
                       .bounds = bounds_norm()}};
  Counter grad_clipped{{.name = "tuft.training.grad_clipped",
                        .unit = "{step}",
                        .description = "Optimizer steps whose gradient was clipped",
                        .labels = {"base_model"}}};
  Counter optim_steps{{.name = "tuft.training.optim_steps",
                       .unit = "{step}",
                       .description = "Optimizer steps taken",
                       .labels = {"base_model"}}};
  Counter nonfinite{{.name = "tuft.training.nonfinite",
                     .unit = "{event}",
                     .description = "Losses, gradients and updates that were not finite",
                     .labels = {"base_model", "what"}}};
  ObservableCounter model_flops{
      {.name = "tuft.training.model.flops",
       .unit = "{flop}",
       .description = "Useful arithmetic of training passes: 2 a weight and token forward, 2 backward (the base is "
                      "frozen), 6 a weight of adapters, causal attention; nothing for recomputation",
       .labels = {"base_model", "pass"},
       .recorded_by = RecordedBy::kWorker}};
  ObservableGauge mfu{
      {.name = "tuft.training.mfu",
       .unit = "1",
       .description =
           "tuft.training.model.flops over what the device could have done meanwhile (tuft.device.peak_flops), while "
           "passes ran since the last collection; absent without a peak or a pass",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
  Counter ooms{{.name = "tuft.training.ooms",
                .unit = "{pass}",
                .description = "Training passes that failed for lack of memory",
                .labels = {"base_model"},
                .recorded_by = RecordedBy::kWorker}};
  ObservableGauge last_step_age{{.name = "tuft.training.last_step.age",
                                 .unit = "s",
                                 .description = "Time since the newest optimizer step, of any run",
                                 .labels = {"base_model"}}};
  Histogram checkpoint_duration{{.name = "tuft.checkpoint.duration",
                                 .unit = "s",
                                 .description = "Saving, loading or copying a checkpoint",
                                 .labels = {"operation"},
                                 .bounds = bounds_request()}};
  Counter checkpoint_failures{{.name = "tuft.checkpoint.failures",
                               .unit = "{operation}",
                               .description = "Checkpoints that could not be saved, loaded, copied or deleted",
                               .labels = {"operation", "reason"}}};
  Counter checkpoint_removed{{.name = "tuft.checkpoint.removed",
                              .unit = "{checkpoint}",
                              .description = "Checkpoints removed, by reason (deleted, expired, replaced)",
                              .labels = {"checkpoint_type", "reason"}}};
  ObservableGauge checkpoint_stored{{.name = "tuft.checkpoint.stored",
                                     .unit = "By",
                                     .description = "Size of all checkpoints, with files that were deleted and are "
                                                    "still in use"}};
  ObservableGauge checkpoint_disk_usage{{.name = "tuft.checkpoint.disk.usage",
                                         .unit = "By",
                                         .description = "Space of the checkpoint directory's file system (used, free)",
                                         .labels = {"state"}}};
};

const TrainingMetrics& training();

}  // namespace tuft::metrics
