// From the rings to the collector. Internal to telemetry.
//
// One thread drains the rings every 100 ms, encodes each record once, and never waits for anything. One lane a signal,
// with a thread and an exporter of its own, sends: a collector may hang for one signal only (each has an endpoint of
// its own), and at shutdown the signals then cost the slowest, not the sum.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "telemetry/exporter.h"
#include "telemetry/lane.h"
#include "telemetry/otlp/encode_records.h"
#include "telemetry/recorder.h"
#include "telemetry/settings.h"
#include "telemetry/span_archive.h"
#include "telemetry/tail_sampler.h"

namespace tuft::telemetry::internal {

// Thread-safe. Not destroyed once started, since threads that record may still ask it to wake up; stop() ends its
// threads and closes its connections all the same.
class Pipeline {
 public:
  // Fails where a file that the settings name cannot be used. Nothing runs before start().
  static Result<std::unique_ptr<Pipeline>> make(const Settings& settings);
  ~Pipeline();

  void start();
  // See flush_telemetry().
  bool flush(Nanos deadline);
  // Drains and exports what is there, the last metric interval included, and ends the threads. What still hangs after
  // three quarters of the time is cancelled; false where something was not delivered by then.
  bool stop(Nanos deadline);

  // Waits until the telemetry thread has taken everything that was recorded until now.
  bool drain_now(Nanos deadline);
  // Null where spans are not kept.
  const SpanArchive* archive() const { return archive_.get(); }

  // The rings ask to be drained early.
  void wake_up();

 private:
  // What only the draining thread touches.
  struct Filling {
    std::unique_ptr<RecordLane> lane;  // absent where the signal is off
    otlp::RecordEncoder encoder;
    Nanos since = 0;
  };

  Pipeline(const Settings& settings, const std::string& resource);

  void run_draining();
  void drain();
  void take_record(const RecordHeader& header, const std::byte* record);
  void add_span(const std::byte* record);
  void note_added(Filling& filling, const SignalSettings& settings);
  void close_if_due(Filling& filling, Nanos interval);
  void close_batch(Filling& filling);

  Lane* lane(Signal signal) const;
  template <typename Take>
  void for_each_lane(Take&& take) const;
  bool all_ended() const;
  void observe_health();
  void forget_health();

  const Settings settings_;
  Nanos wall_offset_;  // of the draining thread
  Filling spans_;
  Filling logs_;
  std::unique_ptr<MetricsLane> metrics_;
  std::optional<TailSampler> tail_sampler_;  // of the draining thread
  std::unique_ptr<SpanArchive> archive_;
  const TailSampler::Export add_span_ = [this](const RecordHeader&, const std::byte* record) { add_span(record); };
  LanesShared shared_;

  std::atomic<bool> wake_up_asked_{false};
  std::atomic<double> ring_high_water_{0};  // since it was last observed

  Mutex mutex_;
  CondVar drain_wanted_;
  uint64_t flush_wanted_ TUFT_GUARDED_BY(mutex_) = 0;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;
  // Flushes for which all records are with their lanes.
  std::atomic<uint64_t> drained_{0};
  std::atomic<bool> draining_ended_{false};
  std::thread draining_;
};

}  // namespace tuft::telemetry::internal
