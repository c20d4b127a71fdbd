// Counts and logs the results of the exports of one signal. Internal to telemetry.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "telemetry/instrument.h"
#include "telemetry/otlp/exporter.h"

namespace tuft::telemetry::internal {

// Limits how often warnings about a failing collector are logged. Thread-safe; all export threads share one object.
class WarningLimit {
 public:
  // Returns true if the caller may log now; then sets `suppressed` to the number of lines omitted since the last one.
  bool allow(Nanos now, uint64_t& suppressed);

 private:
  std::atomic<Nanos> next_{0};
  std::atomic<uint64_t> suppressed_{0};
};

// For use by the export thread only, except for functions marked as thread-safe.
class ExportHealth {
 public:
  ExportHealth(Signal signal, WarningLimit& warnings);

  // `count` and `bytes`: the size of the request. Each attempt is a line at DEBUG, for OTEL_LOG_LEVEL=debug.
  void note_attempt(const ExportResult& result, Nanos duration, size_t count, size_t bytes);
  void note_retry();
  // Counts a batch of `count` records as delivered, except for `result.rejected` of them.
  void note_delivered(size_t count, const ExportResult& result);
  // Counts a batch as lost after `result`.
  void note_lost(size_t count, std::string_view reason, const ExportResult& result);
  // Counts records that were never sent. Thread-safe.
  void note_dropped(size_t count, std::string_view reason);

  // Returns the number of failed attempts. Thread-safe.
  uint64_t failures() const { return failures_.load(); }
  // There is something to send. Thread-safe; where others add to it, call this and note_idle() under the same lock.
  void note_waiting();
  // Everything was sent or given up.
  void note_idle();
  // Returns how long nothing was delivered although something waits or the last attempt failed: since the last success,
  // or since data began to wait after it. 0 otherwise. Thread-safe.
  Nanos overdue() const;

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
  std::atomic<Nanos> overdue_since_{0};  // 0: nothing is
  bool failing_ = false;
  uint64_t lost_ = 0;  // since the last good export
};

}  // namespace tuft::telemetry::internal
