// What telemetry hears of the futures.
#include "control/future_store.h"
#include "control/model_instruments.h"
#include "control/operation_keys.h"
#include "control/quota.h"
#include "telemetry/log.h"

namespace tuft::control {

void FutureStore::bind_instruments() {
  const telemetry::Metrics& metrics = telemetry::get_metrics();
  for (size_t i = 0; i < instruments_.size(); ++i) {
    const telemetry::Label type = {"operation_type", operation_name(static_cast<OperationType>(i))};
    const telemetry::Label failed = {"status", "failed"};
    instruments_[i] = {metrics.futures_created.with({type}),
                       metrics.futures_completed.with({type, {"status", "ready"}}),
                       metrics.futures_completed.with({type, failed, {"error_category", "user"}}),
                       metrics.futures_completed.with({type, failed, {"error_category", "server"}}),
                       metrics.futures_wait_time.with({type}),
                       metrics.futures_execution_time.with({type}),
                       metrics.futures_retrieve_polls.with({type}),
                       metrics.futures_delivery_delay.with({type})};
  }
  for (const OperationType type :
       {OperationType::kForward, OperationType::kForwardBackward, OperationType::kOptimStep}) {
    metrics.sequence_guard_out_of_order.with({{"operation_type", operation_name(type)}});
  }
  for (size_t i = 0; i < kQueueStates; ++i) {
    metrics.futures_try_again.with({{"queue_state", queue_state_name(static_cast<QueueState>(i))}});
  }
  bind_quota_series();
  queue_length_ = metrics.futures_queue_length.with({{"queue_state", "active"}});
  for (const std::string_view reason : {"retention", "bytes"}) metrics.futures_evicted.with({{"reason", reason}});
}

void FutureStore::observe_states() {
  const telemetry::Metrics& metrics = telemetry::get_metrics();
  using Observe = telemetry::Observable::Observe;
  const auto observe_counts = [this](int64_t Counts::*count) {
    return [this, count](const Observe& observe) {
      std::array<Counts, kOperationTypes> counts;
      {
        MutexLock lock(mutex_);
        counts = counts_;
      }
      for (size_t i = 0; i < counts.size(); ++i) {
        observe(static_cast<double>(counts[i].*count),
                {{"operation_type", operation_name(static_cast<OperationType>(i))}});
      }
    };
  };
  metrics.futures_queued.set_callback(observe_counts(&Counts::queued));
  metrics.futures_running.set_callback(observe_counts(&Counts::running));
  metrics.futures_ready_unread.set_callback(observe_counts(&Counts::unread));
  metrics.futures_store_bytes.set_callback([this](const Observe& observe) {
    int64_t bytes = 0;
    {
      MutexLock lock(mutex_);
      bytes = bytes_;
    }
    observe(static_cast<double>(bytes), {});
  });
  metrics.futures_payload_bytes.set_callback(
      [memory = memory_](const Observe& observe) { observe(static_cast<double>(memory->total()), {}); });
  metrics.futures_oldest_age.set_callback([this](const Observe& observe) {
    const Nanos now = clock_.monotonic();
    Nanos queued = now;
    Nanos running = now;
    {
      MutexLock lock(mutex_);
      if (!waiting_.empty()) queued = waiting_.front()->created;
      if (!running_.empty()) running = running_.front()->created;
    }
    observe(to_seconds(now - queued), {{"state", "queued"}});
    observe(to_seconds(now - running), {{"state", "running"}});
  });
}

FutureStore::~FutureStore() {
  const telemetry::Metrics& metrics = telemetry::get_metrics();
  for (const telemetry::ObservableGauge* gauge :
       {&metrics.futures_queued, &metrics.futures_running, &metrics.futures_ready_unread, &metrics.futures_store_bytes,
        &metrics.futures_payload_bytes, &metrics.futures_oldest_age}) {
    gauge->set_callback({});
  }
}

void FutureStore::record_delivery_locked(const Future& future) {
  const Instruments& instruments = instruments_[static_cast<size_t>(future.operation)];
  instruments.polls.record(future.polls_);
  instruments.delay.record(to_seconds(clock_.monotonic() - future.finished_));
}

// What no worker ever began has neither a wait nor an execution.
void FutureStore::record_times(const Future& future, telemetry::Span& span) const {
  if (future.started_ == 0) return;
  const Instruments& instruments = instruments_[static_cast<size_t>(future.operation)];
  const double waited = to_seconds(future.started_ - future.created);
  const double executed = to_seconds(future.decided_ - future.started_);
  instruments.wait.record(waited);
  instruments.execution.record(executed);
  if (tenant_label_) telemetry::get_metrics().tenant_queue_wait.record(waited, {{"tenant", future.user.str()}});
  span.set_attributes({{"tuft.wait_seconds", waited}, {"tuft.execution_seconds", executed}});
}

// The future has ended, so that nobody writes to it any more.
void FutureStore::record_end(Future& future, telemetry::Span span, const Error* error) const {
  record_times(future, span);
  span.set_attribute("tuft.queue_state", "active");
  if (error != nullptr) span.record_error(*error);
  span.end();
  const Instruments& instruments = instruments_[static_cast<size_t>(future.operation)];
  if (error == nullptr) {
    instruments.ready.add(1);
  } else {
    (is_user_error(error->code) ? instruments.failed_user : instruments.failed_server).add(1);
  }
  queue_length_.add(-1);
  const telemetry::Metrics& metrics = telemetry::get_metrics();
  const telemetry::Label type = {"operation_type", operation_name(future.operation)};
  metrics.requests_terminal.add(1, {type, {"base_model", future.keys.base_model}, {"status", terminal_status(error)}});
  if (tenant_label_) metrics.tenant_requests.add(1, {{"tenant", future.user.str()}, type});
  log_end(future, error);
}

void FutureStore::log_end(const Future& future, const Error* error) {
  const telemetry::ContextScope scope(future.context);
  if (error == nullptr) {
    telemetry::log_debug("future.completed", "operation done", KeyAttributes(future.keys));
    return;
  }
  const KeyAttributes attributes(future.keys, {{"error.type", error_code_name(error->code)},
                                               {"tuft.error.reason", error->reason},
                                               {"tuft.queue_state", "active"}});
  if (terminal_status(error) == "cancelled") {
    telemetry::log_info("future.cancelled", error->message, attributes);
  } else {
    telemetry::log(is_user_error(error->code) ? telemetry::Severity::kWarning : telemetry::Severity::kError,
                   "future.failed", error->message, attributes);
  }
}

void FutureStore::log_evicted(const std::vector<FuturePtr>& unread) {
  for (const FuturePtr& future : unread) {
    const telemetry::ContextScope scope(future->context);
    telemetry::log_debug("future.expired", "a result was dropped that no client had fetched",
                         KeyAttributes(future->keys));
  }
}

}  // namespace tuft::control
