// The threads between the rings and the exporter. Internal to telemetry.
//
// One thread drains the rings every 100 ms into batches and never waits for anything. One thread a signal exports:
// a collector may hang for one signal only (each has an endpoint of its own in the environment), and at shutdown the
// signals then cost the slowest, not the sum. Between them are bounded queues; what does not fit is dropped, counted.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/exporter.h"
#include "telemetry/recorder.h"
#include "telemetry/settings.h"

namespace tuft::telemetry::internal {

enum class Signal : uint8_t { kTraces, kLogs, kMetrics };
inline constexpr size_t kSignals = 3;
std::string_view signal_name(Signal signal);

// Thread-safe. Never destroyed once started: an export that hangs may still be using it when the process ends.
class Pipeline {
 public:
  Pipeline(const Settings& settings, std::unique_ptr<Exporter> exporter);
  ~Pipeline() = delete;

  void start();
  // See flush_telemetry().
  bool flush(Nanos deadline);
  // Drains and exports what is there, then ends the threads. False when some thread still hangs at the deadline; it
  // ends when its export does, and exports nothing more.
  bool stop(Nanos deadline);
  // Whether a thread is still inside an export that was given up.
  bool hanging();

  // The rings ask to be drained early.
  void wake_up();

 private:
  // A batch, or the place in the queue that a flush waits for.
  struct Item {
    RecordBatch batch;
    uint64_t flush = 0;
  };
  struct Lane {
    std::deque<Item> queue;
    size_t queued_records = 0;
    uint64_t flushed = 0;
    uint64_t failures = 0;
    uint64_t lost = 0;  // records since the last good export
    bool ended = false;
  };
  // What only the draining thread touches.
  struct Filling {
    RecordBatch batch;
    Nanos since = 0;
  };

  Lane& lane(Signal signal) TUFT_REQUIRES(mutex_) { return lanes_[static_cast<size_t>(signal)]; }

  void run_draining();
  void drain();
  void add_record(Signal signal, const RecordHeader& header, const std::byte* record);
  void close_batch(Signal signal);
  void push_flush(uint64_t id);

  void run_exporting(Signal signal);
  void run_metrics();
  void export_batch(Signal signal, const RecordBatch& batch);
  void export_metrics_once();
  void note_result(Signal signal, bool ok, size_t count);
  void note_end(Signal signal);
  bool flushed_all(uint64_t id) TUFT_REQUIRES(mutex_);

  const std::unique_ptr<Exporter> exporter_;
  const Nanos start_wall_;
  Nanos wall_offset_ = 0;  // of the draining thread
  const std::array<SignalSettings, kSignals> settings_;
  std::array<Filling, kSignals> filling_;

  std::atomic<bool> wake_up_asked_{false};
  // Set at the end of stop(): what is still queued is thrown away.
  std::atomic<bool> give_up_{false};

  Mutex mutex_;
  CondVar drain_wanted_;
  CondVar items_ready_;
  CondVar progress_;
  std::array<Lane, kSignals> lanes_ TUFT_GUARDED_BY(mutex_);
  uint64_t flush_wanted_ TUFT_GUARDED_BY(mutex_) = 0;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;
  bool drained_ TUFT_GUARDED_BY(mutex_) = false;
  Nanos last_warning_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t failures_suppressed_ TUFT_GUARDED_BY(mutex_) = 0;

  std::array<std::thread, kSignals + 1> threads_;
};

}  // namespace tuft::telemetry::internal
