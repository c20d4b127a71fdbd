// Metrics of the bucket of checkpoints.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct BucketMetrics {
  Histogram duration{{.name = "tuft.bucket.duration",
                      .unit = "s",
                      .description = "Operations on the bucket of checkpoints (put, get, list, delete), by result (ok, "
                                     "or the code of the error)",
                      .labels = {"operation", "result"},
                      .bounds = bounds_request(),
                      .recorded_by = RecordedBy::kBoth}};
  Counter bytes{{.name = "tuft.bucket.bytes",
                 .unit = "By",
                 .description = "Bytes of objects that operations (put, get) on the bucket of checkpoints transferred, "
                                "by result (ok, or the code of the error)",
                 .labels = {"operation", "result"},
                 .recorded_by = RecordedBy::kBoth}};
  Counter retries{{.name = "tuft.bucket.retries",
                   .unit = "{request}",
                   .description = "Requests to the bucket of checkpoints that were sent again, by reason (timeout, "
                                  "connection_failed, tls_failed, network_error, slow_down, server_error, damaged)",
                   .labels = {"operation", "reason"},
                   .recorded_by = RecordedBy::kBoth}};
};

const BucketMetrics& bucket();

}  // namespace tuft::metrics
