#include "control/futures/future_telemetry.h"

#include <utility>

#include "control/accounts/quota.h"
#include "control/types/operation_keys.h"
#include "control/workers/model_instruments.h"
#include "metrics/futures.h"
#include "metrics/tenants.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

const telemetry::Tracer& futures_tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.futures");
  return instance;
}

// A custom loss is made for no base model in particular.
std::string_view model_label(const Future& future) {
  return future.keys.base_model.empty() ? std::string_view("unknown") : std::string_view(future.keys.base_model);
}

}  // namespace

FutureTelemetry::FutureTelemetry(bool tenant_label) : tenant_label_(tenant_label) {
  for (size_t i = 0; i < instruments_.size(); ++i) {
    const telemetry::Label type = {"operation_type", operation_name(static_cast<OperationType>(i))};
    const telemetry::Label failed = {"status", "failed"};
    instruments_[i] = {metrics::futures().created.with({type}),
                       metrics::futures().completed.with({type, {"status", "ready"}}),
                       metrics::futures().completed.with({type, failed, {"error_category", "user"}}),
                       metrics::futures().completed.with({type, failed, {"error_category", "server"}}),
                       metrics::futures().wait_time.with({type}),
                       metrics::futures().execution_time.with({type}),
                       metrics::futures().retrieve_polls.with({type}),
                       metrics::futures().delivery_delay.with({type})};
  }
  for (const OperationType type :
       {OperationType::kForward, OperationType::kForwardBackward, OperationType::kOptimStep}) {
    metrics::futures().sequence_guard_out_of_order.with({{"operation_type", operation_name(type)}});
  }
  for (size_t i = 0; i < kQueueStates; ++i) {
    const telemetry::Label state = {"queue_state", queue_state_name(static_cast<QueueState>(i))};
    metrics::futures().try_again.with({state});
    queue_length_[i] = metrics::futures().queue_length.with({state});
  }
  bind_quota_series();
  for (const std::string_view reason : {"retention", "bytes"}) metrics::futures().evicted.with({{"reason", reason}});
}

void FutureTelemetry::begin(Future& future, const telemetry::SpanContext& parent) {
  future.span_ = futures_tracer().start_span("future_store.execute_operation",
                                             {.attributes = KeyAttributes(future.keys), .parent = parent});
  if (!future.keys.run.empty()) future.span_.set_attribute("tuft.model_id", future.keys.run.str());
  future.span_.share(KeyAttributes(future.keys));
  future.context = future.span_.context();
}

void FutureTelemetry::on_accepted(const Future& future) {
  instruments_of(future).created.add(1);
  queue_length_of(future.queue_state_).add(1);
  const telemetry::ContextScope scope(future.context);
  telemetry::log_debug("future.enqueued", "operation accepted", KeyAttributes(future.keys));
}

void FutureTelemetry::count_as(Future& future, QueueState state) {
  if (future.queue_state_ == state) return;
  queue_length_of(future.queue_state_).add(-1);
  queue_length_of(state).add(1);
  future.queue_state_ = state;
}

std::string_view FutureTelemetry::waited_in(const Future& future) {
  return queue_state_name(future.sent_ != 0 ? future.waited_in_ : future.queue_state_);
}

void FutureTelemetry::on_sent(const Future& future) {
  const telemetry::ContextScope scope(future.context);
  telemetry::log_debug("future.begin", "operation is sent to the worker", KeyAttributes(future.keys));
}

void FutureTelemetry::on_delivered(const Future& future, Nanos now) const {
  const telemetry::ContextScope scope(future.context);
  instruments_of(future).polls.record(future.polls_);
  instruments_of(future).delay.record(to_seconds(now - future.finished_));
}

// An operation that no worker began has neither a wait time nor an execution time.
void FutureTelemetry::record_times(const Future& future, telemetry::Span& span) const {
  if (future.started_ == 0) return;
  const double waited = to_seconds(future.started_ - future.created);
  const double executed = to_seconds(future.decided_ - future.started_);
  // Exemplars lead from the histograms to this span.
  const telemetry::ContextScope scope(span.context());
  instruments_of(future).wait.record(waited);
  instruments_of(future).execution.record(executed);
  if (tenant_label_) metrics::tenants().tenant_queue_wait.record(waited, {{"tenant", future.user.str()}});
  span.set_attributes({{"tuft.wait_seconds", waited}, {"tuft.execution_seconds", executed}});
}

void FutureTelemetry::on_end(const Future& future, telemetry::Span span, const Error* error) {
  record_times(future, span);
  span.set_attribute("tuft.queue_state", waited_in(future));
  if (error != nullptr) span.record_error(*error);
  span.end();
  const Instruments& instruments = instruments_of(future);
  if (error == nullptr) {
    instruments.ready.add(1);
  } else {
    (is_user_error(error->code) ? instruments.failed_user : instruments.failed_server).add(1);
  }
  queue_length_of(future.queue_state_).add(-1);
  const telemetry::Label type = {"operation_type", operation_name(future.operation)};
  metrics::tenants().requests_terminal.add(
      1, {type, {"base_model", model_label(future)}, {"status", terminal_status(error)}});
  if (tenant_label_) metrics::tenants().tenant_requests.add(1, {{"tenant", future.user.str()}, type});
  log_end(future, error);
}

void FutureTelemetry::log_end(const Future& future, const Error* error) {
  const telemetry::ContextScope scope(future.context);
  if (error == nullptr) {
    telemetry::log_debug("future.completed", "operation completed", KeyAttributes(future.keys));
    return;
  }
  const KeyAttributes attributes(future.keys, {{"error.type", error_code_name(error->code)},
                                               {"tuft.error.reason", error->reason},
                                               {"tuft.queue_state", waited_in(future)}});
  if (terminal_status(error) == "cancelled") {
    telemetry::log_info("future.cancelled", error->message, attributes);
  } else {
    telemetry::log(is_user_error(error->code) ? telemetry::Severity::kWarning : telemetry::Severity::kError,
                   "future.failed", error->message, attributes);
  }
}

void FutureTelemetry::count_evicted(std::string_view reason) {
  metrics::futures().evicted.add(1, {{"reason", reason}});
}

void FutureTelemetry::log_evicted(const std::vector<FuturePtr>& unread) {
  for (const FuturePtr& future : unread) {
    const telemetry::ContextScope scope(future->context);
    telemetry::log_debug("future.expired", "a result that no client had fetched was dropped",
                         KeyAttributes(future->keys));
  }
}

}  // namespace tuft::control
