#include "telemetry/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <utility>

#include "telemetry/log.h"
#include "telemetry/log_line.h"
#include "telemetry/metrics.h"

namespace tuft::telemetry::internal {
namespace {

constexpr Nanos kDrainInterval = 100 * kMillisecond;
constexpr Nanos kWarningInterval = 30 * kSecond;
// A wall clock that was set moves the offset; its jitter does not, so that spans of one trace share one offset.
constexpr Nanos kOffsetTolerance = kMillisecond;

Nanos now() {
  return system_clock().monotonic();
}

Nanos measure_wall_offset() {
  return system_clock().wall() - system_clock().monotonic();
}

std::chrono::steady_clock::time_point time_point(Nanos monotonic) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(monotonic));
}

// Signals are for the main thread.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t previous_{};
};

// Requests go first where cores are short: what exporting then misses is dropped and counted. On Linux this is the
// priority of the calling thread alone. A refusal changes nothing but that.
void yield_to_requests() {
  ::setpriority(PRIO_PROCESS, 0, 15);
}

size_t count_points(const std::vector<MetricSnapshot>& metrics) {
  size_t points = 0;
  for (const MetricSnapshot& metric : metrics) points += metric.points.size();
  return points;
}

}  // namespace

std::string_view signal_name(Signal signal) {
  switch (signal) {
    case Signal::kTraces:
      return "traces";
    case Signal::kLogs:
      return "logs";
    case Signal::kMetrics:
      return "metrics";
  }
  return "traces";
}

Pipeline::Pipeline(const Settings& settings, std::unique_ptr<Exporter> exporter)
    : exporter_(std::move(exporter)),
      start_wall_(system_clock().wall()),
      wall_offset_(measure_wall_offset()),
      settings_{settings.traces, settings.logs, settings.metrics} {}

void Pipeline::start() {
  const SignalsBlocked blocked;
  threads_[0] = std::thread([this] { run_exporting(Signal::kTraces); });
  threads_[1] = std::thread([this] { run_exporting(Signal::kLogs); });
  threads_[2] = std::thread([this] { run_metrics(); });
  threads_[3] = std::thread([this] { run_draining(); });
  ::pthread_setname_np(threads_[0].native_handle(), "otlp-traces");
  ::pthread_setname_np(threads_[1].native_handle(), "otlp-logs");
  ::pthread_setname_np(threads_[2].native_handle(), "otlp-metrics");
  ::pthread_setname_np(threads_[3].native_handle(), "telemetry");
}

bool Pipeline::flush(Nanos deadline) {
  MutexLock lock(mutex_);
  if (stopping_) return false;
  const uint64_t id = ++flush_wanted_;
  uint64_t failures_before = 0;
  for (const Lane& lane : lanes_) failures_before += lane.failures;
  drain_wanted_.notify_all();
  items_ready_.notify_all();
  while (!flushed_all(id)) {
    if (progress_.wait_until(mutex_, time_point(deadline)) == std::cv_status::timeout && !flushed_all(id)) return false;
  }
  uint64_t failures = 0;
  for (const Lane& lane : lanes_) failures += lane.failures;
  return failures == failures_before;
}

bool Pipeline::flushed_all(uint64_t id) {
  return std::all_of(lanes_.begin(), lanes_.end(), [id](const Lane& lane) { return lane.flushed >= id; });
}

bool Pipeline::stop(Nanos deadline) {
  bool all_ended = false;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    drain_wanted_.notify_all();
    items_ready_.notify_all();
    const auto ended = [this]() TUFT_REQUIRES(mutex_) {
      return drained_ && std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.ended; });
    };
    while (!ended()) {
      if (progress_.wait_until(mutex_, time_point(deadline)) == std::cv_status::timeout) break;
    }
    all_ended = ended();
  }
  give_up_.store(true);
  for (std::thread& thread : threads_) {
    if (!thread.joinable()) continue;
    if (all_ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  return all_ended;
}

bool Pipeline::hanging() {
  MutexLock lock(mutex_);
  return !drained_ || !std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.ended; });
}

void Pipeline::wake_up() {
  if (!wake_up_asked_.exchange(true, std::memory_order_relaxed)) drain_wanted_.notify_one();
}

void Pipeline::run_draining() {
  uint64_t flushed = 0;
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
      close_batch(Signal::kTraces);
      close_batch(Signal::kLogs);
    }
    if (flush != flushed) push_flush(flush);
    flushed = flush;
  }
  MutexLock lock(mutex_);
  drained_ = true;
  items_ready_.notify_all();
  progress_.notify_all();
}

void Pipeline::drain() {
  const Nanos offset = measure_wall_offset();
  if (std::abs(offset - wall_offset_) > kOffsetTolerance) wall_offset_ = offset;
  drain_rings([this](const RecordHeader& header, const std::byte* record) {
    add_record(header.type == kSpanType ? Signal::kTraces : Signal::kLogs, header, record);
  });
  for (const Signal signal : {Signal::kTraces, Signal::kLogs}) {
    const Filling& filling = filling_[static_cast<size_t>(signal)];
    if (filling.batch.count > 0 && now() - filling.since >= settings_[static_cast<size_t>(signal)].interval)
      close_batch(signal);
  }
}

void Pipeline::add_record(Signal signal, const RecordHeader& header, const std::byte* record) {
  Filling& filling = filling_[static_cast<size_t>(signal)];
  if (filling.batch.count == 0) filling.since = now();
  filling.batch.bytes.insert(filling.batch.bytes.end(), record, record + header.size);
  if (++filling.batch.count >= settings_[static_cast<size_t>(signal)].batch_max) close_batch(signal);
}

void Pipeline::close_batch(Signal signal) {
  Filling& filling = filling_[static_cast<size_t>(signal)];
  const size_t count = filling.batch.count;
  if (count == 0) return;
  filling.batch.wall_offset = wall_offset_;
  bool taken = false;
  {
    MutexLock lock(mutex_);
    Lane& to = lane(signal);
    // A queue smaller than a batch still takes one.
    taken = to.queue.empty() || to.queued_records + count <= settings_[static_cast<size_t>(signal)].queue_max;
    if (taken) {
      to.queued_records += count;
      to.queue.push_back({std::move(filling.batch), 0});
    }
  }
  if (taken) {
    items_ready_.notify_all();
  } else {
    count_dropped(signal == Signal::kTraces ? kSpanType : kLogType, "queue_full", static_cast<int64_t>(count));
  }
  filling.batch = {};
}

void Pipeline::push_flush(uint64_t id) {
  MutexLock lock(mutex_);
  lane(Signal::kTraces).queue.push_back({{}, id});
  lane(Signal::kLogs).queue.push_back({{}, id});
  items_ready_.notify_all();
}

void Pipeline::run_exporting(Signal signal) {
  yield_to_requests();
  for (;;) {
    Item item;
    {
      MutexLock lock(mutex_);
      Lane& from = lane(signal);
      while (from.queue.empty() && !drained_) items_ready_.wait(mutex_);
      if (from.queue.empty()) break;
      item = std::move(from.queue.front());
      from.queue.pop_front();
      from.queued_records -= item.batch.count;
    }
    if (item.batch.count > 0) export_batch(signal, item.batch);
    if (item.flush != 0) {
      MutexLock lock(mutex_);
      lane(signal).flushed = std::max(lane(signal).flushed, item.flush);
      progress_.notify_all();
    }
  }
  note_end(signal);
}

void Pipeline::export_batch(Signal signal, const RecordBatch& batch) {
  const uint32_t type = signal == Signal::kTraces ? kSpanType : kLogType;
  bool skip = give_up_.load();
  {
    // At shutdown one failure is enough to know: what remains would only wait for the same collector.
    MutexLock lock(mutex_);
    skip = skip || (stopping_ && lane(signal).lost > 0);
  }
  if (skip) return count_dropped(type, "shutdown", static_cast<int64_t>(batch.count));
  const bool ok = signal == Signal::kTraces ? exporter_->export_spans(batch) : exporter_->export_logs(batch);
  note_result(signal, ok, batch.count);
}

void Pipeline::run_metrics() {
  yield_to_requests();
  const Nanos interval = settings_[static_cast<size_t>(Signal::kMetrics)].interval;
  Nanos next = now() + interval;
  uint64_t flushed = 0;
  for (bool stop = false; !stop;) {
    uint64_t flush = 0;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && flush_wanted_ == flushed && now() < next) items_ready_.wait_until(mutex_, time_point(next));
      flush = flush_wanted_;
      stop = stopping_;
    }
    // A stop follows a flush, which has exported the last interval.
    if (!stop) export_metrics_once();
    if (now() >= next) next = now() + interval;
    MutexLock lock(mutex_);
    lane(Signal::kMetrics).flushed = flushed = flush;
    progress_.notify_all();
  }
  note_end(Signal::kMetrics);
}

void Pipeline::export_metrics_once() {
  count_dropped_log_lines();
  const std::vector<MetricSnapshot> metrics = collect_metrics();
  if (metrics.empty()) return;
  const bool ok = exporter_->export_metrics(metrics, start_wall_, system_clock().wall());
  note_result(Signal::kMetrics, ok, count_points(metrics));
}

void Pipeline::note_result(Signal signal, bool ok, size_t count) {
  get_metrics().telemetry_exported.add(static_cast<int64_t>(count),
                                       {{"signal", signal_name(signal)}, {"outcome", ok ? "ok" : "failed"}});
  uint64_t recovered = 0;
  uint64_t suppressed = 0;
  bool warn = false;
  {
    MutexLock lock(mutex_);
    Lane& of = lane(signal);
    if (ok) {
      recovered = std::exchange(of.lost, 0);
    } else {
      ++of.failures;
      of.lost += count;
      warn = last_warning_ == 0 || now() - last_warning_ >= kWarningInterval;
      if (warn) {
        last_warning_ = now();
        suppressed = std::exchange(failures_suppressed_, 0);
      } else {
        ++failures_suppressed_;
      }
    }
  }
  if (recovered > 0)
    log_info("telemetry.recovered", "the collector takes data again",
             {{"signal", signal_name(signal)}, {"lost_records", recovered}});
  if (warn)
    log_warning("telemetry.export_failed", "the collector did not take the data; requests are not affected",
                {{"signal", signal_name(signal)},
                 {"lost_records", count},
                 {"suppressed", suppressed},
                 {"detail", last_sdk_message()}});
}

void Pipeline::note_end(Signal signal) {
  MutexLock lock(mutex_);
  lane(signal).ended = true;
  progress_.notify_all();
}

}  // namespace tuft::telemetry::internal
