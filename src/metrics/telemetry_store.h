// Metrics of the embedded store of telemetry.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct TelemetryStoreMetrics {
  Counter records{{.name = "tuft.telemetry_store.records",
                   .unit = "{record}",
                   .description = "Spans and log records that the telemetry store took",
                   .labels = {"signal"}}};
  Counter bytes{{.name = "tuft.telemetry_store.bytes",
                 .unit = "By",
                 .description = "Encoded telemetry that the telemetry store took",
                 .labels = {"signal"}}};
  Counter dropped{{.name = "tuft.telemetry_store.dropped",
                   .unit = "{record}",
                   .description = "Requests (queue_full) and records (malformed, disk) that the telemetry store lost",
                   .labels = {"reason"}}};
  Counter removed{{.name = "tuft.telemetry_store.removed",
                   .unit = "{record}",
                   .description = "Spans and log records that left the telemetry store: they were too old (age), the "
                                  "oldest of all over the limit of bytes (bytes), of a user above the fair share "
                                  "(thinning), or in a damaged file (corrupt)",
                   .labels = {"reason", "signal"}}};
  Gauge disk_bytes{{.name = "tuft.telemetry_store.disk", .unit = "By", .description = "Files of the telemetry store"}};
  Gauge memory_bytes{
      {.name = "tuft.telemetry_store.memory", .unit = "By", .description = "Memory of the telemetry store"}};
  Histogram query_duration{{.name = "tuft.telemetry_store.query.duration",
                            .unit = "s",
                            .description = "Queries of the telemetry store",
                            .labels = {"query"},
                            .bounds = bounds_operation()}};
};

const TelemetryStoreMetrics& telemetry_store();

}  // namespace tuft::metrics
