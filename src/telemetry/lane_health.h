// What telemetry says about its own exports, of one signal. Internal to telemetry.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "telemetry/exporter.h"
#include "telemetry/instrument.h"

namespace tuft::telemetry::internal {

// A failing collector is reported now and then, not for each batch and signal. Thread-safe; one for all lanes.
class WarningLimit {
 public:
  // Whether to write the line now; then `suppressed` is how many were not written before it.
  bool allow(Nanos now, uint64_t& suppressed);

 private:
  std::atomic<Nanos> next_{0};
  std::atomic<uint64_t> suppressed_{0};
};

// Of the lane's thread, but for what says otherwise.
class LaneHealth {
 public:
  LaneHealth(Signal signal, WarningLimit& warnings);

  void note_attempt(const ExportResult& result, Nanos duration);
  void note_retry();
  // `count` records of a batch arrived, all but `rejected` of them.
  void note_delivered(size_t count, const ExportResult& result);
  // The batch is given up after `result`.
  void note_lost(size_t count, std::string_view reason, const ExportResult& result);
  // Thread-safe: records that never came to an export.
  void note_dropped(size_t count, std::string_view reason);

  // Thread-safe: attempts that failed.
  uint64_t failures() const { return failures_.load(); }
  // Thread-safe.
  Nanos last_success() const { return last_success_.load(); }

 private:
  void say_failed(const ExportResult& result);

  const Signal signal_;
  WarningLimit& warnings_;
  WarningLimit rejections_;
  BoundCounter exported_ok_;
  BoundCounter exported_failed_;
  BoundCounter retries_;
  BoundCounter rejected_;
  BoundCounter sdk_exported_;
  BoundHistogram duration_;

  std::atomic<uint64_t> failures_{0};
  std::atomic<Nanos> last_success_;
  bool failing_ = false;
  uint64_t lost_ = 0;  // since the last good export
};

}  // namespace tuft::telemetry::internal
