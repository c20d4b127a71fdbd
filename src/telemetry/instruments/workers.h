// Model actors, as their supervisor and they themselves see them. Part of Metrics.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry {

struct WorkerInstruments {
  ObservableGauge workers{{.name = "tuft.workers",
                           .unit = "{worker}",
                           .description = "Model actors, by state (starting, ready, dead)",
                           .labels = {"base_model", "state"}}};
  ObservableGauge worker_up{{.name = "tuft.worker.up",
                             .unit = "{worker}",
                             .description = "1 while the base model's worker answers",
                             .labels = {"base_model"}}};
  ObservableGauge worker_heartbeat_age{{.name = "tuft.worker.heartbeat.age",
                                        .unit = "s",
                                        .description = "Time since a worker last answered",
                                        .labels = {"base_model"}}};
  Counter worker_restarts{{.name = "tuft.worker.restarts",
                           .unit = "{restart}",
                           .description = "Model actors restarted",
                           .labels = {"base_model"}}};
  Histogram worker_rpc_duration{{.name = "tuft.worker.rpc.duration",
                                 .unit = "s",
                                 .description = "Calls to model actors, by method and status",
                                 .labels = {"method", "status"},
                                 .bounds = bounds_request()}};
  Histogram worker_startup_duration{{.name = "tuft.worker.startup.duration",
                                     .unit = "s",
                                     .description = "Start of a worker, by phase (load_weights, ready)",
                                     .labels = {"base_model", "phase"},
                                     .bounds = bounds_request(),
                                     .recorded_by = RecordedBy::kBoth}};
  ObservableGauge worker_busy{
      {.name = "tuft.worker.busy",
       .unit = "1",
       .description = "Share of the time since the last collection that the engine thread computed",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
};

}  // namespace tuft::telemetry
