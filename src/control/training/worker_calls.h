// Calls to the worker of a run's base model, each under a span training_backend.*.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "actor/model_actor.h"
#include "control/futures/future_store.h"
#include "control/training/lifetime.h"
#include "control/training/run.h"
#include "telemetry/trace.h"

namespace tuft::control {

// Use one of the pairs begin_call() and answer_to() for each call. Handlers run on the actor's thread, without a lock;
// they do not run when the answer comes after the end of training. Thread-safe.
class WorkerCalls {
 public:
  WorkerCalls(FutureStore& futures, const Lifetime& lifetime) : futures_(futures), lifetime_(lifetime) {}

  // Begins a call that executes `operation`: marks the future as sent and opens operation.backend_span. `lora_id` is
  // the worker's name of the adapter; empty: the run's id. The call is for the worker's life in which the operation's
  // turn came.
  actor::CallOptions begin_call(telemetry::Name name, RunOperation& operation, std::string_view lora_id = {}) const;
  template <typename Response, typename Handler>
  actor::Callback<Response> answer_to(const OperationPtr& operation, Handler handler) const {
    return [this, owner = lifetime_.owner(), operation, handler = std::move(handler)](Result<Response> result) {
      const auto alive = owner.lock();
      if (result.ok()) {
        operation->backend_span.set_attribute("tuft.queue_seconds", result->queue_seconds());
        if (alive) futures_.mark_started(*operation->future, result->queue_seconds());
      } else {
        operation->backend_span.record_error(result.error());
      }
      operation->backend_span.end();
      if (alive) handler(std::move(result));
    };
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
  FutureStore& futures_;
  const Lifetime& lifetime_;
};

worker::v1::CreateAdapterRequest create_adapter_request(const Run& run);
worker::v1::RemoveAdapterRequest remove_adapter_request(const Run& run);
worker::v1::LoadStateRequest load_state_request(const Run& run, const Checkpoint& checkpoint, bool with_optimizer);

}  // namespace tuft::control
