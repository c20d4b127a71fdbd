// Streams: samples whose tokens go to a listener as they are drawn, without a future.
#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/futures/operation_budget.h"
#include "control/sampling/frozen_adapters.h"
#include "control/sampling/generation.h"
#include "control/sampling/sample_executor.h"
#include "control/sampling/sampler_table.h"

namespace tuft::control {

// The source of a stream: a sampling session of the user, else a checkpoint, else the base model.
struct StreamSource {
  ModelPtr model;
  CheckpointPtr checkpoint = nullptr;
  SamplerId sampler = {};
};

// The streams that have not ended. Each counts as a user of its adapter and as a sample in flight of its user.
//
// Thread-safe; no lock is held over a listener or a call to the worker. Held by a shared_ptr, as a stream may end last.
class SampleStreams : public std::enable_shared_from_this<SampleStreams> {
 public:
  SampleStreams(const Clock& clock, OperationBudget& budget, SamplerTable& samplers,
                std::shared_ptr<FrozenAdapters> adapters, std::shared_ptr<SampleExecutor> executor)
      : clock_(clock),
        budget_(budget),
        samplers_(samplers),
        adapters_(std::move(adapters)),
        executor_(std::move(executor)) {}

  // See Generation::start() and cancel(). `request.model` is resolved already.
  Result<Generation::Number> start(const UserId& user, const StreamSource& source, GenerationRequest request,
                                   const telemetry::SpanContext& trace, GenerationListener listener);
  void cancel(Generation::Number number);
  // Cancels all streams and starts no more.
  void shut_down();

 private:
  class Sink;
  struct Stream {
    SampleOperationPtr operation;
    std::shared_ptr<Sink> sink;
    FrozenAdapterPtr acquired;  // the operation may go to what superseded it
  };

  Result<SamplerTable::Used> acquire(const UserId& user, const StreamSource& source, OperationKeys& keys);
  Status add(Generation::Number number, Stream stream);
  // Returns false if it has ended before.
  bool end(Generation::Number number, const Error* error);

  const Clock& clock_;
  OperationBudget& budget_;
  SamplerTable& samplers_;
  const std::shared_ptr<FrozenAdapters> adapters_;
  const std::shared_ptr<SampleExecutor> executor_;
  std::atomic<Generation::Number> last_{0};
  Mutex mutex_;
  bool is_shut_down_ TUFT_GUARDED_BY(mutex_) = false;
  std::unordered_map<Generation::Number, Stream> streams_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
