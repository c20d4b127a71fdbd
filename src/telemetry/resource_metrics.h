// What feeds the instruments of instruments/resources.h. Internal to telemetry; start_resource_metrics() is in
// telemetry.h.
#pragma once

namespace tuft::telemetry::internal {

// Takes the callbacks away.
void stop_resource_metrics();

}  // namespace tuft::telemetry::internal
