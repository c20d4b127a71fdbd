// Feeds the instruments of instruments/resources.h. Internal to telemetry; start_resource_metrics() is in telemetry.h.
#pragma once

namespace tuft::telemetry::internal {

// Removes the callbacks that start_resource_metrics() set.
void stop_resource_metrics();

}  // namespace tuft::telemetry::internal
