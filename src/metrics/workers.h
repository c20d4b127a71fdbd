// Metrics of workers, from their supervisor and from the workers themselves.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct WorkerMetrics {
  ObservableGauge count{
      {.name = "tuft.workers",
       .unit = "{worker}",
       .description = "Model actors, by state (absent, standby, starting, ready, silent, draining, dead)",
       .labels = {"base_model", "state"}}};
  ObservableGauge up{{.name = "tuft.worker.up",
                      .unit = "{worker}",
                      .description = "1 while a worker of the base model answers",
                      .labels = {"base_model"}}};
  ObservableGauge heartbeat_age{{.name = "tuft.worker.heartbeat.age",
                                 .unit = "s",
                                 .description = "Time since a worker last gave a sign of life",
                                 .labels = {"base_model"}}};
  Counter joins{{.name = "tuft.worker.joins",
                 .unit = "{worker}",
                 .description =
                     "Workers that asked to join, by result (joined, refused, full, gave_up; before they could "
                     "ask: tls, request, token, too_many)",
                 .labels = {"result"}}};
  Histogram drain_duration{{.name = "tuft.worker.drain.duration",
                            .unit = "s",
                            .description = "Time from when a worker was told to end until it was let go, by result "
                                           "(emptied, timed_out)",
                            .labels = {"base_model", "result"},
                            .bounds = bounds_request()}};
  Counter restarts{{.name = "tuft.worker.restarts",
                    .unit = "{restart}",
                    .description = "Model actors restarted",
                    .labels = {"base_model"}}};
  Histogram rpc_duration{{.name = "tuft.worker.rpc.duration",
                          .unit = "s",
                          .description = "Calls to model actors, by method and status",
                          .labels = {"method", "status"},
                          .bounds = bounds_request()}};
  Histogram startup_duration{{.name = "tuft.worker.startup.duration",
                              .unit = "s",
                              .description = "Start of a worker, by phase (load_weights, ready)",
                              .labels = {"base_model", "phase"},
                              .bounds = bounds_request(),
                              .recorded_by = RecordedBy::kBoth}};
  ObservableGauge busy{
      {.name = "tuft.worker.busy",
       .unit = "1",
       .description = "Share of the time since the last collection in which the engine thread computed",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
};

const WorkerMetrics& workers();

}  // namespace tuft::metrics
