// One signal on its way to the collector: a thread, its exporter, and what waits for them. Internal to telemetry.
//
// A request that the collector could not take is sent again after 1 s, 2 s, 4 s .. 30 s, each with a jitter, or after
// what the collector asks for, and given up after a minute. Meanwhile a bounded queue takes what comes; what does not
// fit pushes out the oldest. A flush does not wait for the pause. At shutdown there is one more try, whose failure
// drops the rest; cancel() ends a send that hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/background_thread.h"
#include "telemetry/exporter.h"
#include "telemetry/lane_health.h"
#include "telemetry/otlp/encode_metrics.h"
#include "telemetry/settings.h"

namespace tuft::telemetry::internal {

// For what waits until lanes got somewhere. Thread-safe.
class Progress {
 public:
  void note() {
    MutexLock lock(mutex_);
    ++version_;
    changed_.notify_all();
  }
  // Looks at `done` now and after every note(); what it said last when the deadline passed.
  template <typename Done>
  bool wait(Nanos deadline, Done&& done) {
    for (;;) {
      uint64_t seen = 0;
      {
        MutexLock lock(mutex_);
        seen = version_;
      }
      if (done()) return true;
      MutexLock lock(mutex_);
      while (version_ == seen) {
        if (changed_.wait_until(mutex_, time_point(deadline)) == std::cv_status::timeout) return false;
      }
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  uint64_t version_ TUFT_GUARDED_BY(mutex_) = 0;
};

// What the lanes of a pipeline have in common. Outlives them.
struct LanesShared {
  Progress progress;
  WarningLimit warnings;
};

// How long to wait before the next attempt. For one thread.
class Backoff {
 public:
  // `asked`: what the collector asks for, 0 where it does not.
  Nanos next(Nanos asked);

 private:
  int attempts_ = 0;
};

// Requests go first where cores are short: the calling thread gets a lower priority. What exporting then misses is
// dropped and counted.
void yield_to_requests();

class Lane {
 public:
  Lane(Signal signal, const SignalSettings& settings, std::unique_ptr<Exporter> exporter, LanesShared& shared);
  virtual ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void start();
  // What is there is still sent, once. The thread ends after that.
  void finish();
  // Nothing more is sent: a running send is ended, what waits is dropped.
  void cancel();
  // After finish() or cancel(). Closes the exporter.
  void join();

  // Asks for everything so far and ends the pause before a retry. Returns a number for finished().
  virtual uint64_t flush() = 0;
  // Whether all that flush() asked for arrived or was given up.
  virtual bool finished(uint64_t number) = 0;

  bool ended() const { return ended_.load(); }
  const LaneHealth& health() const { return health_; }

 protected:
  enum class Delivery : uint8_t { kDelivered, kLost, kRetry };

  // On the lane's thread.
  virtual void run() = 0;
  // One attempt; a loss is counted, a retry is up to the caller.
  Delivery attempt(std::string_view request, size_t count);
  const ExportResult& last_result() const { return last_result_; }
  // False where it must not be tried again: shutdown, or it took too long.
  bool wait_for_retry(Backoff& backoff, Nanos first_attempt);
  // Where it said no: the reason to count what is lost under.
  std::string_view reason_to_give_up();
  bool cancelled();

  const SignalSettings settings_;
  Progress& progress_;
  LaneHealth health_;

  Mutex mutex_;
  CondVar changed_;
  bool finishing_ TUFT_GUARDED_BY(mutex_) = false;
  bool cancelled_ TUFT_GUARDED_BY(mutex_) = false;
  // Flushes asked for; a retry's pause ends when it changes.
  uint64_t flush_wanted_ TUFT_GUARDED_BY(mutex_) = 0;

 private:
  const Signal signal_;
  std::unique_ptr<Exporter> exporter_;
  ExportResult last_result_;
  bool last_try_ = false;  // the lane was to finish when the last attempt began
  std::atomic<bool> ended_{false};
  Nanos cpu_counted_ = 0;
  std::thread thread_;
};

// Spans or log records, in requests that are ready to be sent.
class RecordLane final : public Lane {
 public:
  using Lane::Lane;

  // Takes a request with `count` records in it. Never blocks.
  void push(std::string request, size_t count);
  uint64_t flush() override;
  bool finished(uint64_t number) override;

  size_t queued() const { return queued_.load(); }
  size_t capacity() const { return settings_.queue_max; }

 private:
  struct Batch {
    std::string request;
    size_t count = 0;
    uint64_t number = 0;
  };

  void run() override;
  bool take(Batch& batch);
  bool deliver(const Batch& batch);
  void pop_oldest() TUFT_REQUIRES(mutex_);

  std::deque<Batch> queue_ TUFT_GUARDED_BY(mutex_);
  size_t queued_bytes_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t pushed_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t running_ TUFT_GUARDED_BY(mutex_) = 0;  // the number of the request that is being sent, or 0
  std::atomic<size_t> queued_{0};                 // records; written under the lock
};

// Collects the metrics of the process at an interval and sends them. What could not be sent is in the next collection.
// finish() collects the last interval.
class MetricsLane final : public Lane {
 public:
  MetricsLane(const SignalSettings& settings, otlp::MetricsEncoder encoder, std::unique_ptr<Exporter> exporter,
              LanesShared& shared);

  uint64_t flush() override;
  bool finished(uint64_t number) override;

 private:
  void run() override;
  void deliver();
  Delivery collect_and_send(size_t& points);

  otlp::MetricsEncoder encoder_;
  uint64_t finished_ TUFT_GUARDED_BY(mutex_) = 0;
};

// Adds the CPU time of the calling thread since the last call to telemetry_cpu_time(). `counted` belongs to the thread
// and starts at 0.
void count_cpu_time(Nanos& counted);
// Of all telemetry threads so far, those that ended included. Thread-safe.
Nanos telemetry_cpu_time();

}  // namespace tuft::telemetry::internal
