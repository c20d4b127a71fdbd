// Telemetry that the control plane and its workers exchange.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "control/model_backend.h"
#include "telemetry/exposition.h"
#include "telemetry/tail_sampler.h"

namespace tuft::control {

// Asks every worker that is ready; `done` gets what came within actor::kCollectTimeout, in the order of the models.
void collect_metrics(const ModelBackends& backends, std::function<void(std::vector<telemetry::WorkerMetrics>)> done);

// Asks every worker that is ready for its spans of these traces; `done` gets what came, in no order.
void collect_traces(const ModelBackends& backends, std::span<const telemetry::TraceId> traces, size_t bytes_max,
                    std::function<void(std::vector<std::string>)> done);

// Tells every worker that is ready which traces are kept after all.
void keep_traces(const ModelBackends& backends, std::span<const telemetry::TraceId> traces);

}  // namespace tuft::control
