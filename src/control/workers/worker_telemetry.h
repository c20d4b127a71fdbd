// The telemetry that the control plane and its workers exchange.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "control/workers/model_backend.h"
#include "telemetry/exposition.h"
#include "telemetry/record/tail_sampler.h"

namespace tuft::control {

// Asks every ready worker for its metrics. `done` gets the answers that came within rpc::kCollectTimeout, in the order
// of the models.
void collect_metrics(const ModelBackends& backends, std::function<void(std::vector<telemetry::WorkerMetrics>)> done);

// Asks every ready worker for its spans of these traces. `done` gets the answers in no particular order.
void collect_traces(const ModelBackends& backends, std::span<const telemetry::TraceId> traces, size_t bytes_max,
                    std::function<void(std::vector<std::string>)> done);

// Tells every ready worker to keep these traces. Does not wait for the answers.
void keep_traces(const ModelBackends& backends, std::span<const telemetry::TraceId> traces);

}  // namespace tuft::control
