// One sample between its admission and its answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/byte_account.h"
#include "base/mutex.h"
#include "control/futures/operation_budget.h"
#include "control/sampling/frozen_adapters.h"
#include "control/sampling/sample_sink.h"
#include "control/types/types.h"
#include "telemetry/trace.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

// The times and spans belong to the thread that executes the operation. The request and its memory are under the
// operation's own lock: a cancel lets go of them while the operation waits.
class SampleOperation {
 public:
  // `tokens`: the estimated cost (dispatch_queue.h). `memory`: what the request and the operation itself take.
  SampleOperation(UserId whose, FrozenAdapterPtr frozen, OperationKeysPtr names, std::shared_ptr<SampleSink> answers_to,
                  Nanos now, int64_t tokens, worker::v1::SampleRequest request, ByteAccount::Hold memory)
      : user(std::move(whose)),
        adapter(std::move(frozen)),
        keys(std::move(names)),
        sink(std::move(answers_to)),
        num_samples(request.num_samples()),
        cost(tokens),
        placed(now),
        request_(std::make_shared<worker::v1::SampleRequest>(std::move(request))),
        memory_(std::move(memory)) {}

  const UserId user;
  FrozenAdapterPtr adapter;          // FrozenAdapters replaces it by what superseded it, under its lock
  ModelBackendPtr worker;            // that it goes to; chosen by FrozenAdapters
  std::shared_ptr<SampleHome> home;  // of its sampling session; null: it has none
  const OperationKeysPtr keys;
  const std::shared_ptr<SampleSink> sink;
  const int num_samples;
  const int64_t cost;
  const Nanos placed;
  Nanos sent = 0;
  telemetry::Span span;             // sampling_controller.run_sample
  telemetry::Span backend_span;     // sampling_backend.sample
  telemetry::SpanContext previous;  // of request tracing: the stage before the worker's first one

  // Returns the request, which goes to the worker now under the adapter's id there; null if it was let go.
  std::shared_ptr<const worker::v1::SampleRequest> take_turn(const std::string& worker_id) {
    MutexLock lock(mutex_);
    if (dropped_) return nullptr;
    has_turn_ = true;
    request_->set_sampler_id(worker_id);
    return request_;
  }
  // Its worker was lost, and it waits for another turn. Returns false if it has done so before: it may be what ended
  // the worker.
  bool give_turn_back() {
    MutexLock lock(mutex_);
    if (was_repeated_) return false;
    was_repeated_ = true;
    has_turn_ = false;
    return true;
  }
  // Frees the request of an operation that was cancelled and may wait for its turn for long. Does nothing while the
  // worker has it: its answer ends it (`has_ended`).
  void let_go(bool has_ended) {
    std::shared_ptr<worker::v1::SampleRequest> request;  // destroyed without the lock
    MutexLock lock(mutex_);
    if (has_turn_ && !has_ended) return;
    dropped_ = true;
    request.swap(request_);
    memory_.shrink_to(OperationBudget::kOperationBytes);
  }
  bool is_dropped() const {
    MutexLock lock(mutex_);
    return dropped_;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<worker::v1::SampleRequest> request_ TUFT_GUARDED_BY(mutex_);
  ByteAccount::Hold memory_ TUFT_GUARDED_BY(mutex_);
  bool has_turn_ TUFT_GUARDED_BY(mutex_) = false;
  bool was_repeated_ TUFT_GUARDED_BY(mutex_) = false;
  bool dropped_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::control
