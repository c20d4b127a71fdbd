#include "telemetry/export/export_thread.h"

#include <algorithm>
#include <ctime>
#include <pthread.h>
#include <sys/resource.h>
#include <utility>

#include "base/id.h"
#include "telemetry/instruments/health.h"

namespace tuft::telemetry::internal {
namespace {

constexpr Nanos kBackoffMin = kSecond;
constexpr Nanos kBackoffMax = 30 * kSecond;
constexpr Nanos kGiveUpAfter = 60 * kSecond;
constexpr std::string_view kShutdown = "shutdown";
constexpr size_t kQueueBytesMax = size_t{64} << 20;

Nanos now() {
  return system_clock().monotonic();
}

const char* thread_name(Signal signal) {
  switch (signal) {
    case Signal::kTraces:
      return "otlp-traces";
    case Signal::kLogs:
      return "otlp-logs";
    case Signal::kMetrics:
      break;
  }
  return "otlp-metrics";
}

std::atomic<Nanos> g_cpu_time{0};

}  // namespace

void yield_to_requests() {
  // On Linux this changes the priority of this thread only. If it is refused, the thread keeps its priority.
  ::setpriority(PRIO_PROCESS, 0, 15);
}

void count_cpu_time(Nanos& counted) {
  timespec time{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return;
  const Nanos total = time.tv_sec * kSecond + time.tv_nsec;
  g_cpu_time.fetch_add(total - std::exchange(counted, total));
}

Nanos telemetry_cpu_time() {
  return g_cpu_time.load();
}

Nanos Backoff::next(Nanos asked) {
  const Nanos pause = std::min(kBackoffMax, kBackoffMin << std::min(attempts_, 10));
  ++attempts_;
  // Half of the pause is random, so that processes that lost the same collector do not retry at the same time.
  const Nanos jittered = pause / 2 + static_cast<Nanos>(random_u64() % static_cast<uint64_t>(pause / 2 + 1));
  return std::max(asked, jittered);
}

ExportThread::ExportThread(Signal signal, const SignalSettings& settings, std::unique_ptr<Exporter> exporter,
                           ExportShared& shared)
    : settings_(settings),
      progress_(shared.progress),
      health_(signal, shared.warnings),
      signal_(signal),
      exporter_(std::move(exporter)) {}

ExportThread::~ExportThread() = default;

void ExportThread::start() {
  thread_ = std::thread([this] {
    yield_to_requests();
    run();
    count_cpu_time(cpu_counted_);
    ended_.store(true);
    progress_.note();
  });
  ::pthread_setname_np(thread_.native_handle(), thread_name(signal_));
}

void ExportThread::finish() {
  MutexLock lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
}

void ExportThread::cancel() {
  {
    MutexLock lock(mutex_);
    finishing_ = true;
    cancelled_ = true;
    changed_.notify_all();
  }
  exporter_->cancel();
}

void ExportThread::join() {
  if (thread_.joinable()) thread_.join();
  exporter_.reset();
}

bool ExportThread::cancelled() {
  MutexLock lock(mutex_);
  return cancelled_;
}

ExportThread::Delivery ExportThread::attempt(std::string_view request, size_t count) {
  {
    MutexLock lock(mutex_);
    last_try_ = finishing_;
  }
  const Nanos start = now();
  last_result_ = exporter_->send(request);
  health_.note_attempt(last_result_, now() - start, count, request.size());
  count_cpu_time(cpu_counted_);
  Delivery delivery = Delivery::kRetry;
  if (last_result_.outcome == ExportResult::Outcome::kDelivered) {
    health_.note_delivered(count, last_result_);
    delivery = Delivery::kDelivered;
  } else if (last_result_.outcome == ExportResult::Outcome::kRefused) {
    health_.note_lost(count, "refused", last_result_);
    delivery = Delivery::kLost;
  }
  // A flush does not wait for the retries.
  if (delivery != Delivery::kDelivered) progress_.note();
  return delivery;
}

bool ExportThread::wait_for_retry(Backoff& backoff, Nanos first_attempt) {
  const Nanos asked = last_result_.retry_after;
  const Nanos until = now() + backoff.next(asked);
  if (until - first_attempt > kGiveUpAfter) return false;
  {
    MutexLock lock(mutex_);
    if (last_try_) return false;
    const uint64_t flushes = flush_wanted_;
    while (!finishing_ && (asked != 0 || flush_wanted_ == flushes)) {
      if (changed_.wait_until(mutex_, time_point(until)) == std::cv_status::timeout) break;
    }
    if (cancelled_) return false;
  }
  health_.note_retry();
  return true;
}

std::string_view ExportThread::reason_to_give_up() {
  MutexLock lock(mutex_);
  return finishing_ ? kShutdown : "retry_timeout";
}

void RecordExportThread::push(std::string request, size_t count) {
  size_t dropped = 0;
  {
    MutexLock lock(mutex_);
    // A queue smaller than a batch still accepts one batch.
    while (!queue_.empty() &&
           (queued_.load() + count > settings_.queue_max || queued_bytes_ + request.size() > kQueueBytesMax)) {
      dropped += queue_.front().count;
      pop_oldest();
    }
    queued_ += count;
    queued_bytes_ += request.size();
    queue_.push_back({std::move(request), count, ++pushed_});
    health_.note_waiting();
    changed_.notify_all();
  }
  if (dropped > 0) health_.note_dropped(dropped, "queue_full");
}

void RecordExportThread::pop_oldest() {
  queued_ -= queue_.front().count;
  queued_bytes_ -= queue_.front().request.size();
  queue_.pop_front();
}

uint64_t RecordExportThread::flush() {
  MutexLock lock(mutex_);
  ++flush_wanted_;
  changed_.notify_all();
  return pushed_;
}

bool RecordExportThread::finished(uint64_t number) {
  MutexLock lock(mutex_);
  return (running_ == 0 || running_ > number) && (queue_.empty() || queue_.front().number > number);
}

bool RecordExportThread::take(Batch& batch) {
  MutexLock lock(mutex_);
  while (queue_.empty() && !finishing_) changed_.wait(mutex_);
  if (queue_.empty()) return false;
  std::swap(batch, queue_.front());
  queued_ -= batch.count;
  queued_bytes_ -= batch.request.size();
  queue_.pop_front();
  running_ = batch.number;
  return true;
}

void RecordExportThread::run() {
  bool give_up = false;
  for (Batch batch; take(batch); batch = {}) {
    if (give_up || cancelled()) {
      health_.note_dropped(batch.count, kShutdown);
    } else {
      give_up = !deliver(batch);
    }
    {
      MutexLock lock(mutex_);
      running_ = 0;
      if (queue_.empty()) health_.note_idle();
    }
    progress_.note();
  }
}

// Returns false if the collector is unavailable and there is no time to wait for it.
bool RecordExportThread::deliver(const Batch& batch) {
  Backoff backoff;
  const Nanos start = now();
  for (;;) {
    if (attempt(batch.request, batch.count) != Delivery::kRetry) return true;
    if (wait_for_retry(backoff, start)) continue;
    const std::string_view reason = reason_to_give_up();
    health_.note_lost(batch.count, reason, last_result());
    return reason != kShutdown;
  }
}

MetricsExportThread::MetricsExportThread(const SignalSettings& settings, otlp::MetricsEncoder encoder,
                                         std::unique_ptr<Exporter> exporter, ExportShared& shared)
    : ExportThread(Signal::kMetrics, settings, std::move(exporter), shared), encoder_(std::move(encoder)) {}

uint64_t MetricsExportThread::flush() {
  MutexLock lock(mutex_);
  changed_.notify_all();
  return ++flush_wanted_;
}

bool MetricsExportThread::finished(uint64_t number) {
  MutexLock lock(mutex_);
  return finished_ >= number;
}

void MetricsExportThread::run() {
  Nanos next = now() + settings_.interval;
  for (bool last = false; !last;) {
    uint64_t flush = 0;
    {
      MutexLock lock(mutex_);
      while (!finishing_ && flush_wanted_ == finished_ && now() < next) changed_.wait_until(mutex_, time_point(next));
      if (cancelled_) return;
      flush = flush_wanted_;
      last = finishing_;
    }
    health_.note_waiting();
    deliver();
    health_.note_idle();
    while (now() >= next) next += settings_.interval;
    {
      MutexLock lock(mutex_);
      finished_ = flush;
    }
    progress_.note();
  }
}

void MetricsExportThread::deliver() {
  Backoff backoff;
  const Nanos start = now();
  for (size_t points = 0;;) {
    if (collect_and_send(points) != Delivery::kRetry) return;
    if (wait_for_retry(backoff, start)) continue;
    health_.note_lost(points, reason_to_give_up(), last_result());
    return;
  }
}

// Each attempt collects the metrics again, because a later reading includes the earlier ones.
ExportThread::Delivery MetricsExportThread::collect_and_send(size_t& points) {
  const Nanos start = now();
  const std::vector<MetricSnapshot> metrics = collect_metrics();
  health_metrics().sdk_collection_duration.record(to_seconds(now() - start));
  const Nanos wall = system_clock().wall();
  Delivery delivery = Delivery::kDelivered;
  for (const otlp::MetricsRequest& request : encoder_.encode(metrics, wall)) {
    points = request.points;
    delivery = attempt(request.bytes, request.points);
    if (delivery == Delivery::kRetry) return delivery;
    if (delivery == Delivery::kDelivered) encoder_.delivered(request, metrics, wall);
  }
  return delivery;
}

}  // namespace tuft::telemetry::internal
