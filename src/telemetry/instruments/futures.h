// Operations from acceptance to delivery. Part of Metrics.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry {

struct FutureInstruments {
  UpDownCounter futures_queue_length{{.name = "tuft.futures.queue_length",
                                      .unit = "",
                                      .description = "Operations waiting or running, by queue state",
                                      .labels = {"queue_state"}}};
  Counter futures_created{
      {.name = "tuft.futures.created", .unit = "", .description = "Operations accepted", .labels = {"operation_type"}}};
  Counter futures_completed{
      {.name = "tuft.futures.completed",
       .unit = "",
       .description = "Operations ended (ready, failed) and whose fault a failure was (user, server)",
       .labels = {"operation_type", "status", "error_category"}}};
  Histogram futures_wait_time{{.name = "tuft.futures.wait_time",
                               .unit = "s",
                               .description = "An operation from its acceptance until a worker starts on it",
                               .labels = {"operation_type"},
                               .bounds = bounds_wait()}};
  Histogram futures_execution_time{{.name = "tuft.futures.execution_time",
                                    .unit = "s",
                                    .description = "An operation from the worker's start on it to its end",
                                    .labels = {"operation_type"},
                                    .bounds = bounds_request()}};
  ObservableGauge futures_queued{{.name = "tuft.futures.queued",
                                  .unit = "{operation}",
                                  .description = "Operations not yet handed to a worker",
                                  .labels = {"operation_type"}}};
  ObservableGauge futures_running{{.name = "tuft.futures.running",
                                   .unit = "{operation}",
                                   .description = "Operations that a worker has",
                                   .labels = {"operation_type"}}};
  ObservableGauge futures_ready_unread{{.name = "tuft.futures.ready_unread",
                                        .unit = "{operation}",
                                        .description = "Results that no client has fetched yet",
                                        .labels = {"operation_type"}}};
  ObservableGauge futures_oldest_age{{.name = "tuft.futures.oldest_age",
                                      .unit = "s",
                                      .description = "Age of the operation that is queued, or running, longest",
                                      .labels = {"state"}}};
  ObservableGauge futures_store_bytes{
      {.name = "tuft.futures.store.bytes", .unit = "By", .description = "Memory that kept results take"}};
  ObservableGauge futures_payload_bytes{
      {.name = "tuft.futures.payload.bytes",
       .unit = "By",
       .description = "Memory that operations hold which have not ended: what they were asked to do"}};
  Histogram futures_retrieve_polls{{.name = "tuft.futures.retrieve.polls",
                                    .unit = "{poll}",
                                    .description = "Polls until a result was delivered",
                                    .labels = {"operation_type"},
                                    .bounds = bounds_count()}};
  Histogram futures_delivery_delay{{.name = "tuft.futures.delivery.delay",
                                    .unit = "s",
                                    .description = "From a result being ready to its first delivery",
                                    .labels = {"operation_type"},
                                    .bounds = bounds_wait()}};
  Counter futures_try_again{{.name = "tuft.futures.try_again",
                             .unit = "{poll}",
                             .description = "Polls answered without a result",
                             .labels = {"queue_state"}}};
  Counter futures_evicted{{.name = "tuft.futures.evicted",
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
  Histogram tenant_queue_wait{{.name = "tuft.tenant.queue_wait",
                               .unit = "s",
                               .description = "An operation from its acceptance until a worker starts on it, by "
                                              "configured user; only with telemetry.tenant_label",
                               .labels = {"tenant"},
                               .bounds = bounds_wait()}};
  Counter quota_refusals{{.name = "tuft.quota.refusals",
                          .unit = "{request}",
                          .description =
                              "Requests refused because their user was at a limit (sessions, runs, samplers, "
                              "futures, samples_in_flight, queued_bytes, checkpoint_bytes)",
                          .labels = {"limit"}}};
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

}  // namespace tuft::telemetry
