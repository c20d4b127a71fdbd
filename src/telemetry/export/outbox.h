// The encoded spans and log records that wait for a reader in this process: a server puts its own into its store, and
// fetches those of its workers. It exists with TelemetryConfig::outbox.
//
// The telemetry thread encodes each record once, for the exporter and for the outbox, and puts what is new here at
// least every 250 ms. The outbox is bounded; when it is full, the oldest batches are dropped and counted in
// tuft.telemetry.dropped with the reason outbox_full. What was read stays until the reader confirms it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::telemetry {

inline constexpr size_t kOutboxBytesMax = size_t{8} << 20;

struct OutboxBatch {
  uint64_t number = 0;  // from 1, in the order of recording; a gap was dropped
  bool logs = false;    // an ExportLogsServiceRequest; else an ExportTraceServiceRequest
  size_t count = 0;     // records
  std::shared_ptr<const std::string> request = {};
};

// Removes the batches up to the number `confirmed`, and returns those after it, oldest first, of together at most
// `bytes_max`, but at least one if there is one. Thread-safe; meant for one reader.
std::vector<OutboxBatch> read_outbox(uint64_t confirmed, size_t bytes_max);

// Waits until everything that was recorded until now is in the outbox. Returns false if the time ran out, or if
// telemetry has been shut down, which puts everything there.
bool fill_outbox(Nanos budget);

namespace internal {

// The queue itself. Thread-safe.
class Outbox {
 public:
  explicit Outbox(size_t bytes_max = kOutboxBytesMax) : bytes_max_(bytes_max) {}

  // Never blocks for longer than a reader takes pointers.
  void put(bool logs, std::string request, size_t count);
  std::vector<OutboxBatch> read(uint64_t confirmed, size_t bytes_max);

 private:
  const size_t bytes_max_;
  Mutex mutex_;
  std::deque<OutboxBatch> batches_ TUFT_GUARDED_BY(mutex_);
  size_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t last_ TUFT_GUARDED_BY(mutex_) = 0;
};

// Returns the outbox of the process. A child of fork() has one of its own.
Outbox& outbox();

}  // namespace internal
}  // namespace tuft::telemetry
