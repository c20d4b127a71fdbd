// Moves telemetry from the rings to the collector. Internal to telemetry.
//
// One thread drains the rings every 100 ms, encodes each record once, and never waits. Each signal has an export thread
// and an exporter of its own: a hanging collector delays its own signal only, and a shutdown takes as long as the
// slowest signal, not as long as all of them together.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "telemetry/export/export_thread.h"
#include "telemetry/export/outbox.h"
#include "telemetry/export/span_archive.h"
#include "telemetry/otlp/encode_records.h"
#include "telemetry/otlp/exporter.h"
#include "telemetry/record/recorder.h"
#include "telemetry/record/tail_sampler.h"
#include "telemetry/settings/settings.h"

namespace tuft::telemetry::internal {

// Thread-safe. Not destroyed once started, because threads that record may still call wake_up(). stop() ends its
// threads and closes its connections.
class Pipeline {
 public:
  // Returns an error if a file that the settings name cannot be used. Starts no thread.
  static Result<std::unique_ptr<Pipeline>> make(const Settings& settings);
  ~Pipeline();

  void start();
  // See flush_telemetry().
  bool flush(Nanos deadline);
  // Drains and exports everything, including the last metric interval, and ends the threads. After three quarters of
  // the time, cancels sends that still hang. Returns false if something was not delivered.
  bool stop(Nanos deadline);

  // Waits until the telemetry thread has taken everything that was recorded until now.
  bool drain_now(Nanos deadline);
  // Returns null if spans are not archived.
  const SpanArchive* archive() const { return archive_.get(); }

  // Drains the rings early.
  void wake_up();

 private:
  // The batch that is being filled. Confined to the draining thread.
  struct Filling {
    const bool logs;
    std::unique_ptr<RecordExportThread> thread;  // null if the signal is not exported
    otlp::RecordEncoder encoder;
    Nanos since = 0;
    Nanos new_since = 0;  // the first of what is not in the outbox yet
  };

  Pipeline(const Settings& settings, const std::string& resource);

  void run_draining();
  void drain();
  void take_record(const RecordHeader& header, const std::byte* record);
  void add_span(const std::byte* record);
  void note_added(Filling& filling, const SignalSettings& settings);
  void close_if_due(Filling& filling, Nanos interval);
  void close_batch(Filling& filling);
  bool is_wanted(const Filling& filling) const { return filling.thread != nullptr || outbox_ != nullptr; }
  void give_to_outbox(Filling& filling);

  ExportThread* export_thread(Signal signal) const;
  template <typename Take>
  void for_each_thread(Take&& take) const;
  bool all_ended() const;
  void observe_health();
  void forget_health();

  const Settings settings_;
  Outbox* const outbox_;  // null if there is none
  Nanos wall_offset_;     // used by the draining thread only
  Filling spans_;
  Filling logs_;
  std::unique_ptr<MetricsExportThread> metrics_;
  std::optional<TailSampler> tail_sampler_;  // used by the draining thread only
  std::unique_ptr<SpanArchive> archive_;
  const TailSampler::Export add_span_ = [this](const RecordHeader&, const std::byte* record) { add_span(record); };
  ExportShared shared_;

  std::atomic<bool> wake_up_asked_{false};
  std::atomic<double> ring_high_water_{0};  // since the last observation

  Mutex mutex_;
  CondVar drain_wanted_;
  uint64_t flush_wanted_ TUFT_GUARDED_BY(mutex_) = 0;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;
  // The number of flushes whose records have reached the export threads.
  std::atomic<uint64_t> drained_{0};
  std::atomic<bool> draining_ended_{false};
  std::thread draining_;
};

}  // namespace tuft::telemetry::internal
