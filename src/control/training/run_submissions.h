// Takes in what clients ask of training runs: checks it, admits it as a future, and passes it to the executor.
//
// A request that comes twice gets the first one's future: operations are told apart by run and seq_id, a creation by
// session and model_seq_id. The model_seq_id of an unloaded run is refused while the run has results or checkpoints.
//
// A request with invalid parameters of its operation (AdamParams, a checkpoint name) is admitted and fails in its turn,
// so that its seq_id is used up in order; all other errors are returned at once.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "control/futures/future_store.h"
#include "control/sampling/sample_records.h"
#include "control/sessions/sessions.h"
#include "control/training/checkpoint_loader.h"
#include "control/training/custom_losses.h"
#include "control/training/run_executor.h"
#include "control/training/run_table.h"
#include "control/types/types.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// Thread-safe. `trace` is the server span of the request: the operation's spans become its children.
class RunSubmissions {
 public:
  struct Parts {
    const config::Limits& limits;
    const Clock& clock;
    const ModelBackends& backends;
    Sessions& sessions;
    FutureStore& futures;
    RunTable& runs;
    RunExecutor& executor;
    const CheckpointLoader& loader;
    const CustomLosses& custom_losses;
    SampleRecords& records;
  };
  explicit RunSubmissions(const Parts& parts) : parts_(parts) {}

  Result<Submitted> create_model(const UserId& user, const CreateModel& request, const telemetry::SpanContext& trace);
  Result<Submitted> unload_model(const UserId& user, const RunId& run, const telemetry::SpanContext& trace);
  Result<Submitted> forward_backward(const UserId& user, tinker_public::ForwardBackwardRequest request,
                                     const telemetry::SpanContext& trace);
  Result<Submitted> optim_step(const UserId& user, const OptimStep& request, const telemetry::SpanContext& trace);
  Result<Submitted> save_weights(const UserId& user, const SaveWeights& request, const telemetry::SpanContext& trace);
  Result<Submitted> save_weights_external(const UserId& user, const SaveWeightsExternal& request,
                                          const telemetry::SpanContext& trace);
  Result<Submitted> save_weights_for_sampler(const UserId& user, const SaveWeightsForSampler& request,
                                             const telemetry::SpanContext& trace);
  Result<Submitted> load_weights(const UserId& user, const LoadWeights& request, const telemetry::SpanContext& trace);
  // See ControlPlane::refuse().
  Error refuse(const UserId& user, const RefusedOperation& refused, const telemetry::SpanContext& trace);

 private:
  Result<Submitted> create_from_checkpoint(const UserId& user, const LoadWeights& request,
                                           const telemetry::SpanContext& trace);
  Result<Submitted> admit_creation(const UserId& user, const CreateModel& request, const ModelPtr& model,
                                   double lora_alpha, const OperationPtr& operation,
                                   const telemetry::SpanContext& trace);
  Result<Submitted> submit(const UserId& user, const RunId& run_id, OperationType type, std::optional<int64_t> seq_id,
                           RunOperation::Payload payload, std::optional<Error> refusal,
                           const telemetry::SpanContext& trace);
  Status join(const Run& run, worker::v1::ForwardBackwardRequest& pass) const;
  Result<Submitted> admit(const Run& run, RunOperation& operation, const std::string& key,
                          const telemetry::SpanContext& trace, FutureStore::Weight weight);

  const Parts parts_;
};

}  // namespace tuft::control
