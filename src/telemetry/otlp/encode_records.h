// Spans and logs, straight from the rings into OTLP: each record is turned into protobuf once, without an allocation.
// Internal to telemetry.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "telemetry/otlp/wire.h"
#include "telemetry/recorder.h"

namespace tuft::telemetry::internal::otlp {

// Gathers records of one type, by instrumentation scope, into one request. For one thread.
class RecordEncoder {
 public:
  // `resource`: an encoded Resource, see resource.h. The same object gathers spans or logs, not both.
  explicit RecordEncoder(std::string resource) : resource_(std::move(resource)) {}

  // `record` as it lies in a ring, with its header. `wall_offset` turns monotonic time into wall time. Returns what it
  // became, tag and length included, until the next call.
  std::string_view add_span(const std::byte* record, Nanos wall_offset);
  void add_log(const std::byte* record);

  size_t count() const { return count_; }
  // Of records; the request is a little longer.
  size_t bytes() const { return bytes_; }
  // An ExportTraceServiceRequest or ExportLogsServiceRequest of what was added; empties the encoder.
  std::string take();

 private:
  struct Scope {
    std::string_view key;  // lives as long as the process
    std::string name;      // the key as UTF-8
    WireWriter records;
  };
  WireWriter& scope(std::string_view name);

  const std::string resource_;
  // Few, and kept from batch to batch: their memory is used again.
  std::vector<std::unique_ptr<Scope>> scopes_;
  size_t last_scope_ = 0;
  size_t count_ = 0;
  size_t bytes_ = 0;
};

}  // namespace tuft::telemetry::internal::otlp
