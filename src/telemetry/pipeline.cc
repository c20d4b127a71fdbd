#include "telemetry/pipeline.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <utility>
#include <vector>

#include "telemetry/background_thread.h"
#include "telemetry/metrics.h"
#include "telemetry/otlp/resource.h"

namespace tuft::telemetry::internal {
namespace {

constexpr Nanos kDrainInterval = 100 * kMillisecond;
// A wall clock that was set moves the offset; its jitter does not, so that spans of one trace share one offset.
constexpr Nanos kOffsetTolerance = kMillisecond;
// Collectors take 4 MiB over gRPC by default.
constexpr size_t kBatchBytesMax = size_t{2} << 20;

Nanos now() {
  return system_clock().monotonic();
}

Nanos measure_wall_offset() {
  return system_clock().wall() - system_clock().monotonic();
}

}  // namespace

Pipeline::Pipeline(const Settings& settings, const std::string& resource)
    : settings_(settings),
      wall_offset_(measure_wall_offset()),
      spans_{.lane = nullptr, .encoder = otlp::RecordEncoder(resource)},
      logs_{.lane = nullptr, .encoder = otlp::RecordEncoder(resource)} {
  if (settings.keep_errors || settings.keep_slower_than > 0)
    tail_sampler_.emplace(
        TailSamplerOptions{.keep_errors = settings.keep_errors, .keep_slower_than = settings.keep_slower_than});
}

Pipeline::~Pipeline() = default;

Result<std::unique_ptr<Pipeline>> Pipeline::make(const Settings& settings) {
  const std::string resource = otlp::encode_resource(settings);
  std::unique_ptr<Pipeline> pipeline(new Pipeline(settings, resource));
  LanesShared& shared = pipeline->shared_;
  if (settings.traces.protocol != Protocol::kNone) {
    TUFT_ASSIGN(auto exporter, make_exporter(Signal::kTraces, settings.traces));
    pipeline->spans_.lane = std::make_unique<RecordLane>(Signal::kTraces, settings.traces, std::move(exporter), shared);
    if (settings.trace_archive_bytes > 0) {
      pipeline->archive_ = std::make_unique<SpanArchive>(settings.trace_archive_bytes, resource);
    }
  }
  if (settings.logs.protocol != Protocol::kNone) {
    TUFT_ASSIGN(auto exporter, make_exporter(Signal::kLogs, settings.logs));
    pipeline->logs_.lane = std::make_unique<RecordLane>(Signal::kLogs, settings.logs, std::move(exporter), shared);
  }
  if (settings.metrics.protocol != Protocol::kNone) {
    TUFT_ASSIGN(auto exporter, make_exporter(Signal::kMetrics, settings.metrics));
    pipeline->metrics_ = std::make_unique<MetricsLane>(
        settings.metrics, otlp::MetricsEncoder(resource, settings.temporality, system_clock().wall()),
        std::move(exporter), shared);
  }
  return pipeline;
}

void Pipeline::start() {
  const SignalsBlocked blocked;
  observe_health();
  for_each_lane([](Lane& started) { started.start(); });
  draining_ = std::thread([this] { run_draining(); });
  ::pthread_setname_np(draining_.native_handle(), "telemetry");
}

Lane* Pipeline::lane(Signal signal) const {
  switch (signal) {
    case Signal::kTraces:
      return spans_.lane.get();
    case Signal::kLogs:
      return logs_.lane.get();
    case Signal::kMetrics:
      break;
  }
  return metrics_.get();
}

template <typename Take>
void Pipeline::for_each_lane(Take&& take) const {
  for (const Signal signal : {Signal::kTraces, Signal::kLogs, Signal::kMetrics}) {
    if (Lane* const one = lane(signal)) take(*one);
  }
}

bool Pipeline::flush(Nanos deadline) {
  struct Waiting {
    Lane* lane;
    uint64_t failures;
    uint64_t number = 0;
    bool failed() const { return lane->health().failures() != failures; }
    bool finished() const { return lane->finished(number); }
  };
  std::vector<Waiting> waiting;
  for_each_lane([&](Lane& one) { waiting.push_back({.lane = &one, .failures = one.health().failures()}); });
  if (!drain_now(deadline)) return false;
  for (Waiting& one : waiting) one.number = one.lane->flush();
  shared_.progress.wait(deadline, [&] {
    return std::all_of(waiting.begin(), waiting.end(),
                       [](const Waiting& one) { return one.failed() || one.finished() || one.lane->ended(); });
  });
  return std::all_of(waiting.begin(), waiting.end(),
                     [](const Waiting& one) { return !one.failed() && one.finished(); });
}

bool Pipeline::drain_now(Nanos deadline) {
  uint64_t id = 0;
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    id = ++flush_wanted_;
    drain_wanted_.notify_all();
  }
  return shared_.progress.wait(deadline, [&] { return drained_.load() >= id || draining_ended_.load(); });
}

bool Pipeline::all_ended() const {
  bool ended = draining_ended_.load();
  for_each_lane([&](const Lane& one) { ended = ended && one.ended(); });
  return ended;
}

bool Pipeline::stop(Nanos deadline) {
  const Nanos begin = now();
  const Nanos graceful = begin + (deadline - begin) / 4 * 3;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    drain_wanted_.notify_all();
  }
  // The last metrics tell how the last spans and logs fared, unless those take too long.
  shared_.progress.wait(begin + (graceful - begin) / 2, [this] {
    return draining_ended_.load() && (spans_.lane == nullptr || spans_.lane->ended()) &&
           (logs_.lane == nullptr || logs_.lane->ended());
  });
  if (metrics_ != nullptr) metrics_->finish();
  const bool delivered = shared_.progress.wait(graceful, [this] { return all_ended(); });
  if (!delivered) for_each_lane([](Lane& one) { one.cancel(); });
  if (draining_.joinable()) draining_.join();
  for_each_lane([](Lane& one) { one.join(); });
  forget_health();
  return delivered;
}

void Pipeline::wake_up() {
  if (!wake_up_asked_.exchange(true, std::memory_order_relaxed)) drain_wanted_.notify_one();
}

void Pipeline::run_draining() {
  yield_to_requests();
  uint64_t flushed = 0;
  Nanos cpu_counted = 0;
  for (bool stop = false; !stop;) {
    uint64_t flush = 0;
    {
      MutexLock lock(mutex_);
      const auto deadline = time_point(now() + kDrainInterval);
      // A wake-up that comes before the wait is missed; the next drain is 100 ms away at most.
      while (!stopping_ && flush_wanted_ == flushed && !wake_up_asked_.load(std::memory_order_relaxed)) {
        if (drain_wanted_.wait_until(mutex_, deadline) == std::cv_status::timeout) break;
      }
      flush = flush_wanted_;
      stop = stopping_;
    }
    wake_up_asked_.store(false, std::memory_order_relaxed);
    drain();
    if (flush != flushed || stop) {
      close_batch(spans_);
      close_batch(logs_);
      drained_.store(flush);
      shared_.progress.note();
    }
    flushed = flush;
    count_cpu_time(cpu_counted);
  }
  if (spans_.lane != nullptr) spans_.lane->finish();
  if (logs_.lane != nullptr) logs_.lane->finish();
  draining_ended_.store(true);
  shared_.progress.note();
}

void Pipeline::drain() {
  const Nanos offset = measure_wall_offset();
  if (std::abs(offset - wall_offset_) > kOffsetTolerance) wall_offset_ = offset;
  const double fill =
      drain_rings([this](const RecordHeader& header, const std::byte* record) { take_record(header, record); });
  if (tail_sampler_) tail_sampler_->end_drain(add_span_);
  if (fill > ring_high_water_.load()) ring_high_water_.store(fill);
  close_if_due(spans_, settings_.traces.interval);
  close_if_due(logs_, settings_.logs.interval);
}

// Records of a signal that is off are left where they are dropped for free: here.
void Pipeline::take_record(const RecordHeader& header, const std::byte* record) {
  if (header.type == kLogType) {
    if (logs_.lane == nullptr) return;
    logs_.encoder.add_log(record);
    note_added(logs_, settings_.logs);
  } else if (spans_.lane != nullptr) {
    if (tail_sampler_) {
      tail_sampler_->add(header, record, add_span_);
    } else {
      add_span(record);
    }
  }
}

void Pipeline::add_span(const std::byte* record) {
  const std::string_view span = spans_.encoder.add_span(record, wall_offset_);
  if (archive_ != nullptr) {
    SpanHead head;
    std::memcpy(&head, record + sizeof(RecordHeader), sizeof(head));
    archive_->add({head.context.trace_id_high, head.context.trace_id_low}, session_of(record), head.scope.view(), span);
  }
  note_added(spans_, settings_.traces);
}

void Pipeline::note_added(Filling& filling, const SignalSettings& settings) {
  if (filling.encoder.count() == 1) filling.since = now();
  if (filling.encoder.count() >= settings.batch_max || filling.encoder.bytes() >= kBatchBytesMax) close_batch(filling);
}

void Pipeline::close_if_due(Filling& filling, Nanos interval) {
  if (filling.encoder.count() > 0 && now() - filling.since >= interval) close_batch(filling);
}

void Pipeline::close_batch(Filling& filling) {
  const size_t count = filling.encoder.count();
  if (count > 0) filling.lane->push(filling.encoder.take(), count);
}

void Pipeline::observe_health() {
  const Metrics& metrics = get_metrics();
  const auto observe_lane = [](const ObservableGauge& size, const ObservableGauge& capacity, const RecordLane* one) {
    if (one == nullptr) return;
    size.set_callback([one](const auto& observe) { observe(static_cast<double>(one->queued()), {}); });
    capacity.set_callback([one](const auto& observe) { observe(static_cast<double>(one->capacity()), {}); });
  };
  observe_lane(metrics.sdk_span_queue_size, metrics.sdk_span_queue_capacity, spans_.lane.get());
  observe_lane(metrics.sdk_log_queue_size, metrics.sdk_log_queue_capacity, logs_.lane.get());
  metrics.telemetry_last_success_age.set_callback([this](const auto& observe) {
    for (const Signal signal : {Signal::kTraces, Signal::kLogs, Signal::kMetrics}) {
      const Lane* const one = lane(signal);
      if (one != nullptr) observe(to_seconds(now() - one->health().last_success()), {{"signal", signal_name(signal)}});
    }
  });
  if (archive_ != nullptr) {
    metrics.telemetry_archive_bytes.set_callback(
        [this](const auto& observe) { observe(static_cast<double>(archive_->bytes()), {}); });
  }
  metrics.telemetry_ring_high_water.set_callback(
      [this](const auto& observe) { observe(ring_high_water_.exchange(0), {}); });
  metrics.telemetry_thread_cpu.set_callback([](const auto& observe) { observe(to_seconds(telemetry_cpu_time()), {}); });
}

void Pipeline::forget_health() {
  const Metrics& metrics = get_metrics();
  for (const ObservableGauge* gauge :
       {&metrics.sdk_span_queue_size, &metrics.sdk_span_queue_capacity, &metrics.sdk_log_queue_size,
        &metrics.sdk_log_queue_capacity, &metrics.telemetry_last_success_age, &metrics.telemetry_ring_high_water,
        &metrics.telemetry_archive_bytes})
    gauge->set_callback({});
}

}  // namespace tuft::telemetry::internal
