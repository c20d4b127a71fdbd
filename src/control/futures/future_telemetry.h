// The spans, metrics and logs of futures.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/futures/future.h"
#include "telemetry/instrument.h"
#include "telemetry/trace.h"

namespace tuft::control {

// Thread-safe. The methods that take a future read it: its lock is held, or it has ended.
class FutureTelemetry {
 public:
  // `tenant_label`: counts operations by user, too (telemetry.tenant_label).
  explicit FutureTelemetry(bool tenant_label);
  FutureTelemetry(const FutureTelemetry&) = delete;
  FutureTelemetry& operator=(const FutureTelemetry&) = delete;

  // Opens the future's span.
  static void begin(Future& future, const telemetry::SpanContext& parent);
  void on_accepted(const Future& future);
  // Counts the operation under another queue state. Call it under the lock of the store.
  void count_as(Future& future, QueueState state);
  static void on_sent(const Future& future);
  // `span`: the future's, which ends. `error` null: it succeeded.
  void on_end(const Future& future, telemetry::Span span, const Error* error);
  void on_delivered(const Future& future, Nanos now) const;
  static void count_evicted(std::string_view reason);
  // No client has fetched them.
  static void log_evicted(const std::vector<FuturePtr>& unread);

  struct Counts {
    std::atomic<int64_t> queued = 0;
    std::atomic<int64_t> running = 0;  // a worker has it
    std::atomic<int64_t> unread = 0;
  };
  Counts& counts(OperationType operation) { return counts_[static_cast<size_t>(operation)]; }
  const Counts& counts(OperationType operation) const { return counts_[static_cast<size_t>(operation)]; }

 private:
  struct Instruments {
    telemetry::BoundCounter created, ready, failed_user, failed_server;
    telemetry::BoundHistogram wait, execution, polls, delay;
  };

  void record_times(const Future& future, telemetry::Span& span) const;
  telemetry::BoundCounter& queue_length_of(QueueState state) { return queue_length_[static_cast<size_t>(state)]; }
  static std::string_view waited_in(const Future& future);
  static void log_end(const Future& future, const Error* error);
  const Instruments& instruments_of(const Future& future) const {
    return instruments_[static_cast<size_t>(future.operation)];
  }

  const bool tenant_label_;
  std::array<Counts, kOperationTypes> counts_;            // by OperationType
  std::array<Instruments, kOperationTypes> instruments_;  // by OperationType
  std::array<telemetry::BoundCounter, kQueueStates> queue_length_;
};

}  // namespace tuft::control
