// Metrics of operations from acceptance to delivery, and of the queues in which they wait.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct FutureMetrics {
  UpDownCounter queue_length{{.name = "tuft.futures.queue_length",
                              .unit = "",
                              .description = "Operations waiting or running, by queue state",
                              .labels = {"queue_state"}}};
  Counter created{
      {.name = "tuft.futures.created", .unit = "", .description = "Operations accepted", .labels = {"operation_type"}}};
  Counter completed{{.name = "tuft.futures.completed",
                     .unit = "",
                     .description = "Operations ended (ready, failed), and the cause of failures (user, server)",
                     .labels = {"operation_type", "status", "error_category"}}};
  Histogram wait_time{{.name = "tuft.futures.wait_time",
                       .unit = "s",
                       .description = "An operation from its acceptance until a worker starts on it",
                       .labels = {"operation_type"},
                       .bounds = bounds_wait()}};
  Histogram execution_time{{.name = "tuft.futures.execution_time",
                            .unit = "s",
                            .description = "An operation from the worker's start on it to its end",
                            .labels = {"operation_type"},
                            .bounds = bounds_request()}};
  ObservableGauge queued{{.name = "tuft.futures.queued",
                          .unit = "{operation}",
                          .description = "Operations not yet sent to a worker",
                          .labels = {"operation_type"}}};
  ObservableGauge running{{.name = "tuft.futures.running",
                           .unit = "{operation}",
                           .description = "Operations that a worker is running",
                           .labels = {"operation_type"}}};
  ObservableGauge ready_unread{{.name = "tuft.futures.ready_unread",
                                .unit = "{operation}",
                                .description = "Results that no client has fetched yet",
                                .labels = {"operation_type"}}};
  ObservableGauge oldest_age{{.name = "tuft.futures.oldest_age",
                              .unit = "s",
                              .description = "Age of the oldest operation that is queued or running",
                              .labels = {"state"}}};
  ObservableGauge store_bytes{
      {.name = "tuft.futures.store.bytes", .unit = "By", .description = "Memory of the results that are kept"}};
  ObservableGauge payload_bytes{{.name = "tuft.futures.payload.bytes",
                                 .unit = "By",
                                 .description = "Memory of the inputs of operations that have not ended"}};
  Histogram retrieve_polls{{.name = "tuft.futures.retrieve.polls",
                            .unit = "{poll}",
                            .description = "Polls until a result was delivered",
                            .labels = {"operation_type"},
                            .bounds = bounds_count()}};
  Histogram delivery_delay{{.name = "tuft.futures.delivery.delay",
                            .unit = "s",
                            .description = "Time from the end of an operation to the first delivery of its result",
                            .labels = {"operation_type"},
                            .bounds = bounds_wait()}};
  Counter try_again{{.name = "tuft.futures.try_again",
                     .unit = "{poll}",
                     .description = "Polls answered without a result",
                     .labels = {"queue_state"}}};
  Counter announced{{.name = "tuft.futures.announced",
                     .unit = "{future}",
                     .description = "Completions of samples that polls for all samples of a client have delivered",
                     .labels = {}}};
  Counter evicted{{.name = "tuft.futures.evicted",
                   .unit = "{future}",
                   .description = "Results dropped before a client fetched them, by reason",
                   .labels = {"reason"}}};
  ObservableGauge dispatch_waiting{{.name = "tuft.dispatch.waiting",
                                    .unit = "{operation}",
                                    .description = "Operations that could run and wait for their user's turn at the "
                                                   "worker, by kind (training, sampling)",
                                    .labels = {"base_model", "kind"}}};
  ObservableGauge dispatch_in_flight{{.name = "tuft.dispatch.in_flight",
                                      .unit = "{slot}",
                                      .description = "Places at the worker that are taken: operations of training "
                                                     "runs, sequences of samples",
                                      .labels = {"base_model", "kind"}}};
  Counter sequence_guard_out_of_order{{.name = "tuft.sequence_guard.out_of_order",
                                       .unit = "{operation}",
                                       .description = "Operations that arrived before one with a lower seq_id",
                                       .labels = {"operation_type"}}};
  Histogram sequence_guard_wait_duration{{.name = "tuft.sequence_guard.wait.duration",
                                          .unit = "s",
                                          .description = "Time an operation waited for its turn in its run",
                                          .labels = {"operation_type"},
                                          .bounds = bounds_wait()}};
};

const FutureMetrics& futures();

}  // namespace tuft::metrics
