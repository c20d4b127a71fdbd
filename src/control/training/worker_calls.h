// Calls to the worker of a run's base model, each under a span training_backend.*.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "actor/model_actor.h"
#include "control/futures/future_store.h"
#include "control/training/cut_calls.h"
#include "control/training/lifetime.h"
#include "control/training/run.h"
#include "telemetry/trace.h"

namespace tuft::control {

// Use one of the pairs begin_call() and answer_to() for each call. Handlers run on the actor's thread, without a lock;
// they do not run when the answer comes after the end of training. Thread-safe.
class WorkerCalls {
 public:
  WorkerCalls(FutureStore& futures, CutCalls& cut, const Lifetime& lifetime)
      : futures_(futures), cut_(cut), lifetime_(lifetime) {}

  // Begins a call that executes `operation`: marks the future as sent and opens operation.backend_span. `lora_id` is
  // the worker's name of the adapter; empty: the run's id. The call is for the worker's life in which the operation's
  // turn came.
  actor::CallOptions begin_call(telemetry::Name name, RunOperation& operation, std::string_view lora_id = {}) const;
  template <typename Response, typename Handler>
  actor::Callback<Response> answer_to(const OperationPtr& operation, Handler handler) const {
    return [this, owner = lifetime_.owner(), operation, handler = std::move(handler)](Result<Response> result) {
      const auto alive = owner.lock();
      operation->was_answered = result.ok() || !actor::is_worker_lost(result.error());
      if (result.ok()) {
        operation->backend_span.set_attribute("tuft.queue_seconds", result->queue_seconds());
        if (alive) futures_.mark_started(*operation->future, result->queue_seconds());
      } else {
        if (operation->resumes) result = error_of_resumed(std::move(result).error());
        operation->backend_span.record_error(result.error());
      }
      operation->backend_span.end();
      if (alive) handler(std::move(result));
    };
  }

  // Makes the call that executes `operation`, with a request that lives as long as the operation or the pointer. A call
  // that is cut, because the worker was disconnected, waits in CutCalls. The handler is that of answer_to().
  template <typename Method, typename Handler>
  void execute(const RunPtr& run, const OperationPtr& operation,
               std::shared_ptr<const typename Method::Request> request, const actor::CallOptions& options,
               Handler handler) const {
    using Response = typename Method::Response;
    auto answered = [this, owner = lifetime_.owner(), run, operation, request, options,
                     finish = answer_to<Response>(operation, handler), handler](Result<Response> result) mutable {
      const bool is_cut = !result.ok() && result.error().reason == actor::kWorkerDisconnected;
      const auto alive = owner.lock();
      if (!is_cut || alive == nullptr) return finish(std::move(result));
      const Error error = result.error();
      auto again = [this, run, operation, request, options, handler](uint64_t incarnation) {
        actor::CallOptions next = options;
        next.incarnation = incarnation;
        execute<Method>(run, operation, request, next, handler);
      };
      cut_.add(run, {std::move(again), [finish, error] { finish(error); }});
    };
    run->backend()->actor().template call<Method>(std::move(request), options, std::move(answered));
  }

  // A call that the server makes for a run without an operation, in one life of the worker (0: in any).
  struct Call {
    std::shared_ptr<telemetry::Span> span;
    actor::CallOptions options;
  };
  static Call begin_call(telemetry::Name name, const Run& run, uint64_t incarnation = 0);
  template <typename Response, typename Handler>
  actor::Callback<Response> answer_to(const Call& call, Handler handler) const {
    return [owner = lifetime_.owner(), span = call.span, handler = std::move(handler)](Result<Response> result) {
      if (!result.ok()) span->record_error(result.error());
      span->end();
      if (const auto alive = owner.lock()) handler(std::move(result));
    };
  }

 private:
  // The error of an operation of a former server process.
  static Error error_of_resumed(Error error);

  FutureStore& futures_;
  CutCalls& cut_;
  const Lifetime& lifetime_;
};

worker::v1::CreateAdapterRequest create_adapter_request(const Run& run);
worker::v1::RemoveAdapterRequest remove_adapter_request(const Run& run);
worker::v1::OptimStepRequest optim_step_request(const OptimStep& step);
worker::v1::LoadStateRequest load_state_request(const Run& run, const Checkpoint& checkpoint, bool with_optimizer);

}  // namespace tuft::control
