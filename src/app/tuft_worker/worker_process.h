// What every worker process begins and ends with.
#pragma once

#include "app/tuft_worker/options.h"
#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::app {

inline constexpr Nanos kEndGrace = 1500 * kMillisecond;  // from the signal to the end of the process

Status start_logging(const WorkerFlags& flags);
Status start_telemetry(const telemetry::TelemetryConfig& config);
// Logs a failure, and sends what telemetry has left. Returns the exit status of the process.
int end_process(const WorkerFlags& flags, const Status& status);

}  // namespace tuft::app
