// The entry to sampling: sampling sessions (SamplerTable), the frozen adapters behind them (FrozenAdapters), samples
// with a future, and streams (SampleStreams), which SampleExecutor executes.
//
// Samples have no order among themselves; the seq_id only tells repetitions.
//
// Order of locks: SamplerTable's, then FrozenAdapters', then Persistence's. All others are innermost.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "control/accounts/usage.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/futures/future_store.h"
#include "control/futures/operation_budget.h"
#include "control/persistence/persistence.h"
#include "control/sampling/frozen_adapters.h"
#include "control/sampling/generation.h"
#include "control/sampling/sample_executor.h"
#include "control/sampling/sample_records.h"
#include "control/sampling/sample_streams.h"
#include "control/sampling/sampler_table.h"
#include "control/sessions/sessions.h"
#include "control/types/types.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// Thread-safe.
class SamplingController {
 public:
  struct Parts {
    std::shared_ptr<void> owner;  // of all that follows: an answer may come when only sampling is left
    const config::ServerConfig& config;
    const Clock& clock;
    const ModelBackends& backends;
    Sessions& sessions;
    OperationBudget& budget;
    FutureStore& futures;
    CheckpointStore& checkpoints;
    Persistence& persistence;
    Usage& usage;
  };
  explicit SamplingController(const Parts& parts);

  // kNotFound for an unknown session, checkpoint or base model, kInvalidArgument for a request that names nothing to
  // sample from, kUnavailable while the store is away; else see SamplerTable::create().
  Result<SamplerId> create_session(const UserId& user, const CreateSamplingSession& request,
                                   const telemetry::SpanContext& trace);
  // Submits a sample with a future. A repeated seq_id gets the first one's future. kNotFound for the sampling session,
  // kInvalidArgument for the request, and the errors of FutureStore::admit().
  Result<Submitted> sample(const UserId& user, const Sample& request, const telemetry::SpanContext& trace);

  SamplerTable& samplers() { return samplers_; }
  const SamplerTable& samplers() const { return samplers_; }
  FrozenAdapters& adapters() { return *adapters_; }
  SampleStreams& streams() { return *streams_; }
  SampleRecords& records() { return *records_; }

  // Fails what waits. Requires: FutureStore::shut_down() was called.
  void shut_down();

 private:
  const Parts parts_;
  const std::shared_ptr<FrozenAdapters> adapters_;
  const std::shared_ptr<SampleExecutor> executor_;
  SamplerTable samplers_;
  const std::shared_ptr<SampleStreams> streams_;
  const std::shared_ptr<SampleRecords> records_;
};

}  // namespace tuft::control
