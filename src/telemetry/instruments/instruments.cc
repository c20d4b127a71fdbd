#include "telemetry/instruments/health.h"
#include "telemetry/instruments/resources.h"

namespace tuft::telemetry::internal {

const HealthMetrics& health_metrics() {
  static const HealthMetrics& metrics = *new HealthMetrics;
  return metrics;
}

const ResourceMetrics& resource_metrics() {
  static const ResourceMetrics& metrics = *new ResourceMetrics;
  return metrics;
}

}  // namespace tuft::telemetry::internal
