#include "control/sampling/sample_executor.h"

#include <optional>
#include <string>
#include <utility>

#include "control/types/errors.h"
#include "control/types/operation_keys.h"
#include "metrics/sampling.h"

namespace tuft::control {
namespace {

Error cancelled() {
  return {ErrorCode::kCancelled, "the request was cancelled", "cancelled"};
}

}  // namespace

void SampleExecutor::execute(const SampleOperationPtr& operation) {
  if (operation->sink->is_cancelled()) return fail(operation, cancelled());
  const Result<bool> is_loaded = adapters_->begin(operation);
  if (!is_loaded.ok()) return fail(operation, is_loaded.error());
  if (*is_loaded) return enqueue(operation);
  // A cancel that came before the operation began to wait did not find it among those that wait.
  if (operation->sink->is_cancelled() && adapters_->stop_waiting(operation)) fail(operation, cancelled());
}

void SampleExecutor::enqueue(const SampleOperationPtr& operation) {
  operation->worker->sampling_queue().submit({.user = operation->user,
                                              .cost = operation->cost,
                                              .slots = operation->num_samples,
                                              .start = [weak = weak_from_this(), operation] {
                                                const auto self = weak.lock();
                                                return self != nullptr && self->start_turn(operation);
                                              }});
}

// Returns false if the operation needs no slot. It may have been cancelled, and its adapter lost, while it waited.
bool SampleExecutor::start_turn(const SampleOperationPtr& operation) {
  std::optional<Error> refusal;
  if (operation->is_dropped()) {
    refusal = cancelled();
  } else if (is_shut_down_) {
    refusal = shutting_down();
  } else if (operation->sink->is_cancelled()) {
    refusal = cancelled();
  }
  const auto at_worker = adapters_->at_worker(operation);
  if (!refusal && at_worker) {
    if (const auto request = operation->take_turn(at_worker->id)) {
      send(operation, request, at_worker->incarnation);
      return true;
    }
    refusal = cancelled();
  }
  adapters_->end(*operation);
  if (refusal) {
    fail(operation, *refusal);
  } else {
    execute(operation);
  }
  return false;
}

// A later life of the worker has not loaded the adapter, and would call it unknown.
void SampleExecutor::send(const SampleOperationPtr& operation,
                          const std::shared_ptr<const worker::v1::SampleRequest>& request, uint64_t incarnation) {
  telemetry_.begin_call(*operation, *request);
  operation->sink->mark_sent();
  actor::CallOptions options{
      .trace = operation->backend_span.context(), .ids = call_ids(*operation->keys), .incarnation = incarnation};
  options.ids.set_previous_stage(operation->previous.span_id);
  operation->sink->send(operation->worker->actor(), request, options,
                        [weak = weak_from_this(), operation](Result<worker::v1::SampleResponse> result) {
                          SamplingTelemetry::end_call(*operation, result);
                          if (const auto self = weak.lock()) return self->on_answer(operation, std::move(result));
                          operation->sink->abandon();
                        });
}

void SampleExecutor::on_answer(const SampleOperationPtr& operation, Result<worker::v1::SampleResponse> result) {
  adapters_->end(*operation, !result.ok() && result.error().reason == "adapter_page_lost");
  if (result.ok()) operation->sink->mark_started(result->queue_seconds());
  const ModelBackendPtr worker = operation->worker;
  if (repeats(*operation, result)) {
    metrics::sampling().repeats.add(1, {{"base_model", worker->name()}});
    execute(operation);
  } else {
    finish(operation, std::move(result));
  }
  worker->sampling_queue().release(operation->user, operation->num_samples);
}

bool SampleExecutor::repeats(SampleOperation& operation, const Result<worker::v1::SampleResponse>& result) const {
  if (result.ok() || !actor::is_worker_lost(result.error()) || is_shut_down_) return false;
  return operation.sink->may_repeat() && !operation.sink->is_cancelled() && operation.give_turn_back();
}

void SampleExecutor::finish(const SampleOperationPtr& operation, Result<worker::v1::SampleResponse> result) {
  telemetry_.end(*operation, result);
  // Done first, so that a client that sees the operation end finds its memory free.
  operation->let_go(true);
  operation->sink->finish(std::move(result));
}

}  // namespace tuft::control
