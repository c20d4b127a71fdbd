// Metrics of a program that uses the library, for the library's tests.
#pragma once

#include "telemetry/instrument.h"

namespace tuft::telemetry::testing {

struct ProgramMetrics {
  Counter created{
      {.name = "tuft.futures.created", .unit = "", .description = "Operations accepted", .labels = {"operation_type"}}};
  UpDownCounter queue_length{{.name = "tuft.futures.queue_length",
                              .unit = "",
                              .description = "Operations waiting or running",
                              .labels = {"queue_state"}}};
  Histogram execution_time{{.name = "tuft.futures.execution_time",
                            .unit = "s",
                            .description = "An operation from its start to its end",
                            .labels = {"operation_type"},
                            .bounds = bounds_operation()}};
  Histogram loss{{.name = "tuft.training.loss",
                  .unit = "1",
                  .description = "Mean loss per token",
                  .labels = {"base_model"},
                  .bounds = {.1, 1, 10}}};
  Counter sampling_requests{{.name = "tuft.sampling.requests",
                             .unit = "",
                             .description = "Sampling requests that ended",
                             .labels = {"base_model"}}};
};

inline const ProgramMetrics& program_metrics() {
  static const ProgramMetrics& metrics = *new ProgramMetrics;
  return metrics;
}

}  // namespace tuft::telemetry::testing
