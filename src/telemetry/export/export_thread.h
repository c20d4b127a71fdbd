// Sends one signal to the collector: a thread, its exporter, and a queue. Internal to telemetry.
//
// A request that the collector could not accept is sent again after 1 s, 2 s, 4 s .. 30 s with random jitter, or after
// the time that the collector asks for; it is dropped after one minute. Meanwhile a bounded queue accepts new data and
// drops the oldest if it is full. A flush ends the pause before a retry. A shutdown makes one more attempt; if it
// fails, the rest is dropped. cancel() ends a send that hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "base/background_thread.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/export/export_health.h"
#include "telemetry/otlp/encode_metrics.h"
#include "telemetry/otlp/exporter.h"
#include "telemetry/settings/settings.h"

namespace tuft::telemetry::internal {

// Lets threads wait for export threads to make progress. Thread-safe.
class Progress {
 public:
  void note() {
    MutexLock lock(mutex_);
    ++version_;
    changed_.notify_all();
  }
  // Waits until `done` returns true, checking now and after every note(). Returns false if the deadline passed.
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

// State that the export threads of a pipeline share. Outlives them.
struct ExportShared {
  Progress progress;
  WarningLimit warnings;
};

// The time to wait before the next attempt. For one thread.
class Backoff {
 public:
  // `asked` is the time that the collector asks for; 0: none.
  Nanos next(Nanos asked);

 private:
  int attempts_ = 0;
};

// Lowers the priority of the calling thread, so that requests go first on a busy machine. Data for which exporting then
// has no time is dropped and counted.
void yield_to_requests();

class ExportThread {
 public:
  ExportThread(Signal signal, const SignalSettings& settings, std::unique_ptr<Exporter> exporter, ExportShared& shared);
  virtual ~ExportThread();
  ExportThread(const ExportThread&) = delete;
  ExportThread& operator=(const ExportThread&) = delete;

  void start();
  // Sends what is queued, with one attempt each; then the thread ends.
  void finish();
  // Ends a running send and drops the queue.
  void cancel();
  // Closes the exporter. Requires finish() or cancel() before.
  void join();

  // Starts to send everything queued so far and ends the pause before a retry. Returns a number for finished().
  virtual uint64_t flush() = 0;
  // Returns true if everything that flush() covered has arrived or was dropped.
  virtual bool finished(uint64_t number) = 0;

  bool ended() const { return ended_.load(); }
  const ExportHealth& health() const { return health_; }

 protected:
  enum class Delivery : uint8_t { kDelivered, kLost, kRetry };

  // Runs on the thread.
  virtual void run() = 0;
  // Makes one attempt. Counts a loss; the caller decides whether to retry.
  Delivery attempt(std::string_view request, size_t count);
  const ExportResult& last_result() const { return last_result_; }
  // Waits for the retry. Returns false if there must be none: at a shutdown, or after too long a time.
  bool wait_for_retry(Backoff& backoff, Nanos first_attempt);
  // Returns the reason of the loss for its counter, if wait_for_retry() returned false.
  std::string_view reason_to_give_up();
  bool cancelled();

  const SignalSettings settings_;
  Progress& progress_;
  ExportHealth health_;

  Mutex mutex_;
  CondVar changed_;
  bool finishing_ TUFT_GUARDED_BY(mutex_) = false;
  bool cancelled_ TUFT_GUARDED_BY(mutex_) = false;
  // The number of flushes requested. A change ends the pause before a retry.
  uint64_t flush_wanted_ TUFT_GUARDED_BY(mutex_) = 0;

 private:
  const Signal signal_;
  std::unique_ptr<Exporter> exporter_;
  ExportResult last_result_;
  bool last_try_ = false;  // finish() had been called when the last attempt began
  std::atomic<bool> ended_{false};
  Nanos cpu_counted_ = 0;
  std::thread thread_;
};

// Sends encoded requests of spans or log records.
class RecordExportThread final : public ExportThread {
 public:
  using ExportThread::ExportThread;

  // Queues a request that holds `count` records. Never blocks.
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

// Collects the metrics of the process at an interval and sends them. A failed export loses nothing, because the next
// collection includes its values. finish() collects the last interval.
class MetricsExportThread final : public ExportThread {
 public:
  MetricsExportThread(const SignalSettings& settings, otlp::MetricsEncoder encoder, std::unique_ptr<Exporter> exporter,
                      ExportShared& shared);

  uint64_t flush() override;
  bool finished(uint64_t number) override;

 private:
  void run() override;
  void deliver();
  Delivery collect_and_send(size_t& points);

  otlp::MetricsEncoder encoder_;
  uint64_t finished_ TUFT_GUARDED_BY(mutex_) = 0;
};

// Adds the CPU time that the calling thread used since the last call to telemetry_cpu_time(). `counted` belongs to the
// thread and starts at 0.
void count_cpu_time(Nanos& counted);
// Returns the CPU time of all telemetry threads, including those that ended. Thread-safe.
Nanos telemetry_cpu_time();

}  // namespace tuft::telemetry::internal
