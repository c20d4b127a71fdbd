#include "control/observe/telemetry_feed.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <string>
#include <utility>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "control/workers/worker_telemetry.h"
#include "telemetry/export/outbox.h"
#include "telemetry/exposition.h"

namespace tuft::control {
namespace {

using telemetry_store::RecordType;

constexpr Nanos kOwnInterval = 250 * kMillisecond;
constexpr Nanos kWorkerInterval = 500 * kMillisecond;
constexpr Nanos kMetricsInterval = 5 * kSecond;
constexpr Nanos kFillTime = 200 * kMillisecond;
// Two of these are less than the outbox of a worker holds.
constexpr size_t kAnswerBytesMax = size_t{2} << 20;
// An answer that does not come through a narrow link within the time of its call would be sent again and again, and
// take the link from operations. So after each of these, half as much is asked for.
constexpr int kHalvingsMax = 5;

Nanos now() {
  return system_clock().monotonic();
}

size_t asked_bytes_max(int halvings) {
  return kAnswerBytesMax >> halvings;
}

RecordType type_of(bool logs) {
  return logs ? RecordType::kLogs : RecordType::kSpans;
}

}  // namespace

// What callbacks leave for the thread. They share it, so that an answer may come after the end of the feed.
struct TelemetryFeed::Mail {
  struct Answer {
    size_t worker = 0;
    uint64_t incarnation = 0;
    Result<worker::v1::TakeTelemetryResponse> result;
  };

  void put(Answer answer) {
    MutexLock lock(mutex);
    answers.push_back(std::move(answer));
    changed.notify_all();
  }
  void put(std::vector<telemetry::WorkerMetrics> found) {
    MutexLock lock(mutex);
    if (metrics.empty()) metrics = std::move(found);
    changed.notify_all();
  }

  Mutex mutex;
  CondVar changed;
  std::vector<Answer> answers TUFT_GUARDED_BY(mutex);
  std::vector<telemetry::WorkerMetrics> metrics TUFT_GUARDED_BY(mutex);
  uint64_t rest_wanted TUFT_GUARDED_BY(mutex) = 0;
  uint64_t rest_done TUFT_GUARDED_BY(mutex) = 0;
  bool stopping TUFT_GUARDED_BY(mutex) = false;
};

void move_outbox(telemetry_store::Store& store) {
  uint64_t confirmed = 0;
  while (true) {
    const std::vector<telemetry::OutboxBatch> batches = telemetry::read_outbox(confirmed, kAnswerBytesMax);
    if (batches.empty()) return;
    for (const telemetry::OutboxBatch& batch : batches) store.add(type_of(batch.logs), *batch.request, {});
    confirmed = batches.back().number;
  }
}

TelemetryFeed::TelemetryFeed(const ModelBackends& backends, telemetry_store::Store& store)
    : backends_(backends), store_(store), mail_(std::make_shared<Mail>()), workers_(backends.all().size()) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "telemetry_feed");
}

TelemetryFeed::~TelemetryFeed() {
  {
    MutexLock lock(mail_->mutex);
    mail_->stopping = true;
    mail_->changed.notify_all();
  }
  thread_.join();
}

bool TelemetryFeed::fetch_rest(Nanos budget) {
  const Nanos deadline = now() + budget;
  {
    MutexLock lock(mail_->mutex);
    const uint64_t number = ++mail_->rest_wanted;
    mail_->changed.notify_all();
    while (mail_->rest_done < number) {
      if (mail_->changed.wait_until(mail_->mutex, time_point(deadline)) == std::cv_status::timeout) return false;
    }
  }
  return store_.settle(std::max<Nanos>(deadline - now(), 0));
}

void TelemetryFeed::run() {
  Nanos own_due = 0;
  Nanos workers_due = 0;
  Nanos metrics_due = 0;
  const auto is_due = [](Nanos& due, Nanos interval) {
    if (now() < due) return false;
    due = now() + interval;
    return true;
  };
  while (true) {
    if (is_due(own_due, kOwnInterval)) move_outbox(store_);
    if (is_due(metrics_due, kMetricsInterval)) ask_metrics();
    ask_workers(is_due(workers_due, kWorkerInterval));
    note_rest();
    wait(std::min({own_due, workers_due, metrics_due}));
    take_mail();
    MutexLock lock(mail_->mutex);
    if (mail_->stopping) return;
  }
}

void TelemetryFeed::wait(Nanos until) {
  MutexLock lock(mail_->mutex);
  while (!mail_->stopping && mail_->answers.empty() && mail_->metrics.empty() && mail_->rest_wanted == rest_begun_) {
    if (mail_->changed.wait_until(mail_->mutex, time_point(until)) == std::cv_status::timeout) return;
  }
}

void TelemetryFeed::take_mail() {
  std::vector<Mail::Answer> answers;
  std::vector<telemetry::WorkerMetrics> metrics;
  {
    MutexLock lock(mail_->mutex);
    answers.swap(mail_->answers);
    metrics.swap(mail_->metrics);
    if (rest_begun_ != mail_->rest_wanted) {
      for (WorkerState& worker : workers_) worker.rest_wanted = true;
      rest_begun_ = mail_->rest_wanted;
    }
  }
  for (telemetry::WorkerMetrics& one : metrics) store_.add_metrics(std::move(one.snapshot), {.worker = one.worker});
  for (Mail::Answer& answer : answers) {
    WorkerState& worker = workers_[answer.worker];
    worker.asked = false;
    if (!answer.result.ok()) {
      const bool is_late = answer.result.error().code == ErrorCode::kDeadlineExceeded;
      if (is_late) worker.halvings = std::min(worker.halvings + 1, kHalvingsMax);
      worker.rest_wanted = worker.rest_wanted && !worker.all_asked;
      continue;
    }
    size_t bytes = 0;
    for (auto& batch : *answer.result->mutable_batches()) {
      bytes += batch.request().size();
      if (answer.incarnation != worker.incarnation || batch.number() <= worker.confirmed) continue;
      worker.confirmed = batch.number();
      store_.add(type_of(batch.logs()), std::move(*batch.mutable_request()),
                 {.worker = backends_.all()[answer.worker]->label()});
    }
    worker.goes_on = bytes > asked_bytes_max(worker.halvings) / 2;
    if (!worker.goes_on) worker.halvings = 0;
    if (worker.all_asked && !worker.goes_on) worker.rest_wanted = false;
  }
}

void TelemetryFeed::ask_workers(bool due) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    WorkerState& worker = workers_[i];
    if (worker.asked || !(due || worker.goes_on || worker.rest_wanted)) continue;
    if (backends_.all()[i]->actor().ready()) {
      ask(i);
    } else {
      worker.rest_wanted = false;
    }
  }
}

void TelemetryFeed::ask(size_t index) {
  actor::ModelActor& actor = backends_.all()[index]->actor();
  WorkerState& worker = workers_[index];
  if (const uint64_t incarnation = actor.incarnation(); incarnation != worker.incarnation) {
    worker.incarnation = incarnation;
    worker.confirmed = 0;
  }
  worker.asked = true;
  worker.goes_on = false;
  worker.all_asked = worker.rest_wanted;
  worker::v1::TakeTelemetryRequest request;
  request.set_confirmed(worker.confirmed);
  request.set_bytes_max(static_cast<int64_t>(asked_bytes_max(worker.halvings)));
  request.set_all(worker.rest_wanted);
  actor::CallOptions options;
  options.incarnation = worker.incarnation;
  actor.take_telemetry(
      std::move(request), options,
      [mail = mail_, index, incarnation = worker.incarnation](Result<worker::v1::TakeTelemetryResponse> result) {
        mail->put({index, incarnation, std::move(result)});
      });
}

void TelemetryFeed::ask_metrics() {
  store_.add_metrics(telemetry::metrics_snapshot(), {});
  collect_metrics(backends_,
                  [mail = mail_](std::vector<telemetry::WorkerMetrics> found) { mail->put(std::move(found)); });
}

void TelemetryFeed::note_rest() {
  const bool waits =
      std::any_of(workers_.begin(), workers_.end(), [](const WorkerState& worker) { return worker.rest_wanted; });
  if (waits || rest_done_ == rest_begun_) return;
  telemetry::fill_outbox(kFillTime);
  move_outbox(store_);
  store_.add_metrics(telemetry::metrics_snapshot(), {});
  rest_done_ = rest_begun_;
  MutexLock lock(mail_->mutex);
  mail_->rest_done = rest_begun_;
  mail_->changed.notify_all();
}

}  // namespace tuft::control
