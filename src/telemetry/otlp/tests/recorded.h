// Provides records as the draining thread gets them, without a pipeline.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "telemetry/record/recorder.h"
#include "telemetry/record/recording.h"

namespace tuft::telemetry::internal::otlp {

using Record = std::vector<std::byte>;

struct Recorded {
  std::vector<Record> spans;
  std::vector<Record> logs;
};

// Returns the records that `work` writes on this thread.
inline Recorded record(const std::function<void()>& work) {
  drain_rings([](const RecordHeader&, const std::byte*) {});
  g_recording = true;
  g_logs_recording = true;
  work();
  g_recording = false;
  g_logs_recording = false;
  Recorded out;
  drain_rings([&out](const RecordHeader& header, const std::byte* bytes) {
    (header.type == kSpanType ? out.spans : out.logs).emplace_back(bytes, bytes + header.size);
  });
  return out;
}

}  // namespace tuft::telemetry::internal::otlp
