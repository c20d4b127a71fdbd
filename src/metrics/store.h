// Metrics of operations on the persistent store.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct StoreMetrics {
  Histogram redis_operation_duration{{.name = "tuft.redis.operation.duration",
                                      .unit = "s",
                                      .description = "Operations on Redis (SET, GET, DEL, SCAN)",
                                      .labels = {"operation"},
                                      .bounds = bounds_operation()}};
  Histogram db_client_operation_duration{{.name = "db.client.operation.duration",
                                          .unit = "s",
                                          .description = "Operations on the persistent store",
                                          .labels = {"db.system.name", "db.operation.name", "error.type"},
                                          .bounds = bounds_operation()}};
  Counter errors{{.name = "tuft.store.errors",
                  .unit = "{operation}",
                  .description = "Store operations that failed",
                  .labels = {"operation", "reason"}}};
  Counter slow_operations{{.name = "tuft.store.slow_ops",
                           .unit = "{operation}",
                           .description = "Store operations over 100 ms",
                           .labels = {"operation"}}};
  Counter restore_runs{{.name = "tuft.restore.runs",
                        .unit = "{run}",
                        .description = "Training runs restored after a restart (ok, corrupted)",
                        .labels = {"result"}}};
};

const StoreMetrics& store();

}  // namespace tuft::metrics
