#include "telemetry/export/pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <utility>
#include <vector>

#include "base/background_thread.h"
#include "telemetry/instruments/health.h"
#include "telemetry/metric/exemplar.h"
#include "telemetry/otlp/resource.h"

namespace tuft::telemetry::internal {
namespace {

constexpr Nanos kDrainInterval = 100 * kMillisecond;
// The offset changes if the wall clock was set, but not for jitter, so that the spans of one trace share one offset.
constexpr Nanos kOffsetTolerance = kMillisecond;
// With the interval of drains, records are in the outbox after 250 ms.
constexpr Nanos kOutboxInterval = 150 * kMillisecond;
// By default, collectors accept 4 MiB over gRPC.
constexpr size_t kBatchBytesMax = size_t{2} << 20;

Nanos measure_wall_offset() {
  return system_clock().wall() - system_clock().monotonic();
}

}  // namespace

Pipeline::Pipeline(const Settings& settings, const std::string& resource)
    : settings_(settings),
      outbox_(settings.outbox ? &outbox() : nullptr),
      wall_offset_(measure_wall_offset()),
      spans_{.logs = false, .thread = nullptr, .encoder = otlp::RecordEncoder(resource)},
      logs_{.logs = true, .thread = nullptr, .encoder = otlp::RecordEncoder(resource)} {
  if (settings.keep_errors || settings.keep_slower_than > 0)
    tail_sampler_.emplace(
        TailSamplerOptions{.keep_errors = settings.keep_errors, .keep_slower_than = settings.keep_slower_than});
}

Pipeline::~Pipeline() = default;

Result<std::unique_ptr<Pipeline>> Pipeline::make(const Settings& settings) {
  const std::string resource = otlp::encode_resource(settings);
  std::unique_ptr<Pipeline> pipeline(new Pipeline(settings, resource));
  ExportShared& shared = pipeline->shared_;
  if (settings.traces.protocol != Protocol::kNone) {
    TUFT_ASSIGN(auto exporter, make_exporter(Signal::kTraces, settings.traces));
    pipeline->spans_.thread =
        std::make_unique<RecordExportThread>(Signal::kTraces, settings.traces, std::move(exporter), shared);
    if (settings.trace_archive_bytes > 0) {
      pipeline->archive_ = std::make_unique<SpanArchive>(settings.trace_archive_bytes, resource);
    }
  }
  if (settings.logs.protocol != Protocol::kNone) {
    TUFT_ASSIGN(auto exporter, make_exporter(Signal::kLogs, settings.logs));
    pipeline->logs_.thread =
        std::make_unique<RecordExportThread>(Signal::kLogs, settings.logs, std::move(exporter), shared);
  }
  if (settings.metrics.protocol != Protocol::kNone) {
    TUFT_ASSIGN(auto exporter, make_exporter(Signal::kMetrics, settings.metrics));
    pipeline->metrics_ = std::make_unique<MetricsExportThread>(
        settings.metrics,
        otlp::MetricsEncoder(resource, settings.temporality, system_clock().wall(),
                             {.histograms = settings.histogram_aggregation,
                              .labels = {settings.metric_labels.begin(), settings.metric_labels.end()}}),
        std::move(exporter), shared);
  }
  return pipeline;
}

void Pipeline::start() {
  const SignalsBlocked blocked;
  observe_health();
  for_each_thread([](ExportThread& started) { started.start(); });
  draining_ = std::thread([this] { run_draining(); });
  ::pthread_setname_np(draining_.native_handle(), "telemetry");
}

ExportThread* Pipeline::export_thread(Signal signal) const {
  switch (signal) {
    case Signal::kTraces:
      return spans_.thread.get();
    case Signal::kLogs:
      return logs_.thread.get();
    case Signal::kMetrics:
      break;
  }
  return metrics_.get();
}

template <typename Take>
void Pipeline::for_each_thread(Take&& take) const {
  for (const Signal signal : {Signal::kTraces, Signal::kLogs, Signal::kMetrics}) {
    if (ExportThread* const one = export_thread(signal)) take(*one);
  }
}

bool Pipeline::flush(Nanos deadline) {
  struct Waiting {
    ExportThread* thread;
    uint64_t failures;
    uint64_t number = 0;
    bool failed() const { return thread->health().failures() != failures; }
    bool finished() const { return thread->finished(number); }
  };
  std::vector<Waiting> waiting;
  for_each_thread([&](ExportThread& one) { waiting.push_back({.thread = &one, .failures = one.health().failures()}); });
  if (!drain_now(deadline)) return false;
  for (Waiting& one : waiting) one.number = one.thread->flush();
  shared_.progress.wait(deadline, [&] {
    return std::all_of(waiting.begin(), waiting.end(),
                       [](const Waiting& one) { return one.failed() || one.finished() || one.thread->ended(); });
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
  for_each_thread([&](const ExportThread& one) { ended = ended && one.ended(); });
  return ended;
}

bool Pipeline::stop(Nanos deadline) {
  const Nanos begin = system_clock().monotonic();
  const Nanos graceful = begin + (deadline - begin) / 4 * 3;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    drain_wanted_.notify_all();
  }
  // The last metrics include the delivery of the last spans and logs, unless that takes too long.
  shared_.progress.wait(begin + (graceful - begin) / 2, [this] {
    return draining_ended_.load() && (spans_.thread == nullptr || spans_.thread->ended()) &&
           (logs_.thread == nullptr || logs_.thread->ended());
  });
  if (metrics_ != nullptr) metrics_->finish();
  const bool delivered = shared_.progress.wait(graceful, [this] { return all_ended(); });
  if (!delivered) for_each_thread([](ExportThread& one) { one.cancel(); });
  if (draining_.joinable()) draining_.join();
  for_each_thread([](ExportThread& one) { one.join(); });
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
      const auto deadline = time_point(system_clock().monotonic() + kDrainInterval);
      // A wake-up before the wait is missed, but the next drain is at most 100 ms away.
      while (!stopping_ && flush_wanted_ == flushed && !wake_up_asked_.load(std::memory_order_relaxed)) {
        if (drain_wanted_.wait_until(mutex_, deadline) == std::cv_status::timeout) break;
      }
      flush = flush_wanted_;
      stop = stopping_;
    }
    wake_up_asked_.store(false, std::memory_order_relaxed);
    drain();
    end_exemplar_round();
    if (flush != flushed || stop) {
      close_batch(spans_);
      close_batch(logs_);
      drained_.store(flush);
      shared_.progress.note();
    }
    flushed = flush;
    count_cpu_time(cpu_counted);
  }
  if (spans_.thread != nullptr) spans_.thread->finish();
  if (logs_.thread != nullptr) logs_.thread->finish();
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

// Records of a signal that nobody wants are dropped here, where that costs nothing.
void Pipeline::take_record(const RecordHeader& header, const std::byte* record) {
  if (header.type == kLogType) {
    if (!is_wanted(logs_)) return;
    logs_.encoder.add_log(record);
    note_added(logs_, settings_.logs);
  } else if (is_wanted(spans_)) {
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
  if (filling.encoder.count() == 1) filling.since = system_clock().monotonic();
  if (filling.encoder.new_count() == 1) filling.new_since = system_clock().monotonic();
  if (filling.encoder.count() >= settings.batch_max || filling.encoder.bytes() >= kBatchBytesMax) close_batch(filling);
}

void Pipeline::close_if_due(Filling& filling, Nanos interval) {
  if (filling.encoder.count() == 0) return;
  if (filling.thread == nullptr) interval = kOutboxInterval;
  if (system_clock().monotonic() - filling.since >= interval) return close_batch(filling);
  if (system_clock().monotonic() - filling.new_since >= kOutboxInterval) give_to_outbox(filling);
}

void Pipeline::close_batch(Filling& filling) {
  const size_t count = filling.encoder.count();
  if (count == 0) return;
  give_to_outbox(filling);
  if (filling.thread != nullptr) {
    filling.thread->push(filling.encoder.take(), count);
  } else {
    filling.encoder.clear();
  }
}

// The exporter's batch goes on being filled: its requests do not become smaller because of the outbox.
void Pipeline::give_to_outbox(Filling& filling) {
  const size_t count = filling.encoder.new_count();
  if (outbox_ != nullptr && count > 0) outbox_->put(filling.logs, filling.encoder.take_new(), count);
}

void Pipeline::observe_health() {
  const HealthMetrics& metrics = health_metrics();
  const auto observe_queue = [](const ObservableGauge& size, const ObservableGauge& capacity,
                                const RecordExportThread* one) {
    if (one == nullptr) return;
    size.set_callback([one](const auto& observe) { observe(static_cast<double>(one->queued()), {}); });
    capacity.set_callback([one](const auto& observe) { observe(static_cast<double>(one->capacity()), {}); });
  };
  observe_queue(metrics.sdk_span_queue_size, metrics.sdk_span_queue_capacity, spans_.thread.get());
  observe_queue(metrics.sdk_log_queue_size, metrics.sdk_log_queue_capacity, logs_.thread.get());
  metrics.last_success_age.set_callback([this](const auto& observe) {
    for (const Signal signal : {Signal::kTraces, Signal::kLogs, Signal::kMetrics}) {
      const ExportThread* const one = export_thread(signal);
      if (one != nullptr) observe(to_seconds(one->health().overdue()), {{"signal", signal_name(signal)}});
    }
  });
  if (archive_ != nullptr) {
    metrics.archive_bytes.set_callback(
        [this](const auto& observe) { observe(static_cast<double>(archive_->bytes()), {}); });
  }
  metrics.ring_high_water.set_callback([this](const auto& observe) { observe(ring_high_water_.exchange(0), {}); });
  metrics.thread_cpu.set_callback([](const auto& observe) { observe(to_seconds(telemetry_cpu_time()), {}); });
}

void Pipeline::forget_health() {
  const HealthMetrics& metrics = health_metrics();
  for (const ObservableGauge* gauge :
       {&metrics.sdk_span_queue_size, &metrics.sdk_span_queue_capacity, &metrics.sdk_log_queue_size,
        &metrics.sdk_log_queue_capacity, &metrics.last_success_age, &metrics.ring_high_water, &metrics.archive_bytes})
    gauge->set_callback({});
}

}  // namespace tuft::telemetry::internal
