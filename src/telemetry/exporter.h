// The port to opentelemetry-cpp: everything of its SDK stays behind it. Internal to telemetry.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/metric_store.h"
#include "telemetry/settings.h"

namespace tuft::telemetry::internal {

// Records as they left the rings, one after the other.
struct RecordBatch {
  std::vector<std::byte> bytes;
  size_t count = 0;
  // What turns monotonic time into wall time.
  Nanos wall_offset = 0;
};

// One thread a signal may call it at once: traces, logs and metrics share nothing.
class Exporter {
 public:
  virtual ~Exporter() = default;
  // Each returns false when the data did not arrive; then it is lost. Blocks up to the export timeout.
  virtual bool export_spans(const RecordBatch& batch) = 0;
  virtual bool export_logs(const RecordBatch& batch) = 0;
  virtual bool export_metrics(const std::vector<MetricSnapshot>& metrics, Nanos start_wall, Nanos now_wall) = 0;
};

// OTLP over gRPC, or the console. Routes the SDK's own messages to last_sdk_message().
Result<std::unique_ptr<Exporter>> make_exporter(const Settings& settings);

// The newest message that the SDK wrote to its internal log, for the line that reports a failed export.
std::string last_sdk_message();

}  // namespace tuft::telemetry::internal
