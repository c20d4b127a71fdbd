// Encodes spans and log records from the rings as OTLP, each once and without an allocation. Internal to telemetry.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "telemetry/otlp/wire.h"
#include "telemetry/record/recorder.h"
#include "telemetry/record/share_keys.h"

namespace tuft::telemetry::internal::otlp {

// Collects records of one type, by instrumentation scope, into one request. For one thread.
class RecordEncoder {
 public:
  // `resource`: an encoded Resource, see resource.h. An encoder takes either spans or log records.
  explicit RecordEncoder(std::string resource) : resource_(std::move(resource)) {}

  // Adds a record from a ring, with its header. `wall_offset` converts monotonic time to wall time. Returns the encoded
  // span, including tag and length; valid until the next call.
  std::string_view add_span(const std::byte* record, Nanos wall_offset);
  void add_log(const std::byte* record);

  size_t count() const { return count_; }
  // Returns the number of records added since take_new(), take() or clear().
  size_t new_count() const { return count_ - given_; }
  // Returns the size of the records; the request is slightly larger.
  size_t bytes() const { return bytes_; }
  // Returns an ExportTraceServiceRequest or ExportLogsServiceRequest with the records added so far, and empties the
  // encoder.
  std::string take();
  // Returns the same with the records that new_count() counts, and keeps them for take().
  std::string take_new();
  // Empties the encoder.
  void clear();

 private:
  struct Scope {
    std::string_view key;  // lives as long as the process
    std::string name;      // the key as UTF-8
    WireWriter records;
    size_t given = 0;  // bytes of `records` that take_new() has returned
  };
  WireWriter& scope(std::string_view name);
  const ShareKeys* keys_of(const SpanContext& context);

  // Returns a request with the records after `start` bytes of each scope.
  template <typename Start>
  std::string request(Start&& start) const;

  const std::string resource_;
  // There are few scopes; they are kept from batch to batch to reuse their memory.
  std::vector<std::unique_ptr<Scope>> scopes_;
  size_t last_scope_ = 0;
  uint32_t last_keys_number_ = 0;
  std::shared_ptr<const ShareKeys> last_keys_;
  size_t count_ = 0;
  size_t given_ = 0;  // records that take_new() has returned
  size_t bytes_ = 0;
};

}  // namespace tuft::telemetry::internal::otlp
