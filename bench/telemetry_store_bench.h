// What the benchmark of the telemetry store compares: the store itself, and SQLite as it would be used instead.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tuft::bench {

// The conditions that are measured; `value` is what the spans of the load have.
struct Asked {
  std::string key;  // session, run, user, name, failed, duration, request, or nothing: the newest traces
  std::string value;
};

class TelemetrySubject {
 public:
  virtual ~TelemetrySubject() = default;
  virtual void add_spans(std::string request) = 0;
  virtual void add_logs(std::string request) = 0;
  // Waits until what was added can be found.
  virtual void settle() = 0;
  // Each returns the number of results.
  virtual size_t find(const Asked& asked) = 0;  // the newest 100 traces, with their summaries
  virtual size_t open_trace(const std::string& trace_id) = 0;
  virtual size_t search_logs(const std::string& text) = 0;
  virtual size_t disk_bytes() = 0;
};

std::unique_ptr<TelemetrySubject> open_segments(const std::string& directory, bool is_full);
std::unique_ptr<TelemetrySubject> open_sqlite(const std::string& directory);

}  // namespace tuft::bench
