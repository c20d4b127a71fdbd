// What every worker process begins and ends with.
#pragma once

#include "app/tuft_worker/options.h"
#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::app {

inline constexpr Nanos kEndGrace = 1500 * kMillisecond;  // from the signal or the drain to the end of the process
inline constexpr Nanos kTelemetryGrace = 800 * kMillisecond;

// Ends this process with SIGTERM when the process `parent_pid` ends, which must be its parent; 0: no such process.
Status tie_to_parent(int parent_pid);
Status start_logging(const WorkerFlags& flags);
Status start_telemetry(const telemetry::TelemetryConfig& config);
// Logs a failure, and sends what telemetry has left. Returns the exit status of the process.
int end_process(const WorkerFlags& flags, const Status& status);

}  // namespace tuft::app
