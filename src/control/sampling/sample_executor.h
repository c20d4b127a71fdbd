// Brings samples to the worker and their answers back: each waits until its adapter is loaded, then for its user's turn
// in the worker's dispatch queue. Samples have no order among themselves. One whose worker is lost is drawn again,
// once, unless a client has seen a part of it.
#pragma once

#include <atomic>
#include <memory>

#include "base/result.h"
#include "control/sampling/frozen_adapters.h"
#include "control/sampling/sample_operation.h"
#include "control/sampling/sampling_telemetry.h"

namespace tuft::control {

// Thread-safe, without a lock of its own. Held by a shared_ptr: answers of the worker that arrive after its end are
// dropped.
class SampleExecutor : public std::enable_shared_from_this<SampleExecutor> {
 public:
  SampleExecutor(std::shared_ptr<FrozenAdapters> adapters, const SamplingTelemetry& telemetry)
      : adapters_(std::move(adapters)), telemetry_(telemetry) {}

  // Executes the operation; its sink gets the answer, perhaps before this returns.
  void execute(const SampleOperationPtr& operation);
  // Ends an operation that is not executed.
  void fail(const SampleOperationPtr& operation, const Error& error) { finish(operation, error); }
  // Operations that have not had their turn fail when they get it.
  void shut_down() { is_shut_down_ = true; }

 private:
  void enqueue(const SampleOperationPtr& operation);
  bool start_turn(const SampleOperationPtr& operation);
  void send(const SampleOperationPtr& operation, const std::shared_ptr<const worker::v1::SampleRequest>& request,
            uint64_t incarnation);
  bool repeats(SampleOperation& operation, const Result<worker::v1::SampleResponse>& result) const;
  void on_answer(const SampleOperationPtr& operation, Result<worker::v1::SampleResponse> result);
  void finish(const SampleOperationPtr& operation, Result<worker::v1::SampleResponse> result);

  const std::shared_ptr<FrozenAdapters> adapters_;
  const SamplingTelemetry telemetry_;
  std::atomic<bool> is_shut_down_{false};
};

}  // namespace tuft::control
