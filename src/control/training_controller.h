// Training runs: takes their operations in, puts them in order and executes them at the actor of the run's base model,
// one at a time for each run. Runs are independent of each other.
//
// Order of locks: a run's record_mutex, its mutex, then those of FutureStore, CheckpointStore and Persistence, of which
// each is innermost but for FutureStore's, which may be held while Persistence takes its own. No lock is held over an
// actor call, a callback or a file.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/checkpoint_store.h"
#include "control/disk_worker.h"
#include "control/future_store.h"
#include "control/model_backend.h"
#include "control/persistence.h"
#include "control/restore_plan.h"
#include "control/run.h"
#include "control/sampling_controller.h"
#include "control/sessions.h"
#include "control/types.h"
#include "control/usage.h"

namespace tuft::control {

// Thread-safe. Held by a shared_ptr: answers of actors that come after its end are dropped.
class TrainingController : public std::enable_shared_from_this<TrainingController> {
 public:
  struct Parts {
    std::shared_ptr<void> owner;  // of all that follows: an answer may come when only the controller is left
    const config::ServerConfig& config;
    const Clock& clock;
    const ModelBackends& backends;
    Sessions& sessions;
    FutureStore& futures;
    CheckpointStore& checkpoints;
    DiskWorker& disk;
    Persistence& persistence;
    Usage& usage;
    std::shared_ptr<SamplingController> sampling;
  };
  explicit TrainingController(const Parts& parts);
  ~TrainingController();

  Result<Submitted> create_model(const UserId& user, const CreateModel& request, const telemetry::SpanContext& trace);
  Result<Submitted> unload_model(const UserId& user, const RunId& run, const telemetry::SpanContext& trace);
  Result<Submitted> forward_backward(const UserId& user, tinker_public::ForwardBackwardRequest request,
                                     const telemetry::SpanContext& trace);
  Result<Submitted> optim_step(const UserId& user, const OptimStep& request, const telemetry::SpanContext& trace);
  Result<Submitted> save_weights(const UserId& user, const SaveWeights& request, const telemetry::SpanContext& trace);
  Result<Submitted> save_weights_for_sampler(const UserId& user, const SaveWeightsForSampler& request,
                                             const telemetry::SpanContext& trace);
  Result<Submitted> load_weights(const UserId& user, const LoadWeights& request, const telemetry::SpanContext& trace);
  Result<ModelInfo> get_info(const UserId& user, const RunId& run) const;
  // For lists, with those that end. Nothing for somebody else's.
  std::vector<RunSummary> runs_of(const UserId& user) const;
  std::optional<RunSummary> run_of(const UserId& user, const RunId& run) const;

  // At the start: a run that a former life of the server had. Its adapter comes back with its worker.
  void restore_run(const RestoredRun& restored);
  // The worker of `backend` is up in its life `generation`: brings the adapters of its runs back and goes on with them.
  void on_worker_ready(const std::shared_ptr<ModelBackend>& backend, uint64_t generation);
  // Gives up gaps and operations that waited too long for a worker.
  void sweep();
  // Fails what waits. Call after FutureStore::shut_down().
  void shut_down();
  // The session of `user` ends: cancels what its runs have not begun, and goes on with each as RunEnding says. True: it
  // has no runs any more. Call it again until then.
  bool close_session(const UserId& user, const SessionId& session, SessionEnd why);

 private:
  using Payload = decltype(RunOperation::payload);

  // training_submissions.cc: taking operations in
  Result<Submitted> admit_creation(const UserId& user, const CreateModel& request,
                                   const std::shared_ptr<ModelBackend>& backend, double lora_alpha,
                                   const OperationPtr& operation, const telemetry::SpanContext& trace);
  Result<Submitted> submit(const UserId& user, const RunId& run_id, OperationType type, std::optional<int64_t> seq_id,
                           Payload payload, std::optional<Error> refusal, const telemetry::SpanContext& trace);

  // training_controller.cc: which runs there are, order, ends
  Result<RunPtr> find(const UserId& user, const RunId& run) const;
  Result<RunPtr> add_run(const UserId& user, const CreateModel& request, const std::shared_ptr<ModelBackend>& backend,
                         double lora_alpha, bool* added);
  void remove_run(const RunPtr& run, const Error& why);
  bool insert_locked(const RunPtr& run) TUFT_REQUIRES(mutex_);
  void uncount_locked(const UserId& user, int count) TUFT_REQUIRES(mutex_);
  void enqueue(const RunPtr& run, const OperationPtr& operation);
  static bool can_start_locked(const Run& run) TUFT_REQUIRES(run.mutex);
  void pump(const RunPtr& run);
  bool start_turn(const RunPtr& run);
  void conclude(const RunPtr& run, const OperationPtr& operation, Result<FutureValue> result);
  void fail(const RunPtr& run, const OperationPtr& operation, const Error& error);
  static void let_go(Run& run, RunOperation& operation);
  std::vector<store::Change> changes_of(const Run& run) const;
  void open_numbers_locked(Run& run, const RunOperation& operation) const TUFT_REQUIRES(run.mutex);
  std::vector<RunPtr> all_runs() const;
  std::vector<RunPtr> users_runs(const UserId& user) const;
  std::vector<RunPtr> session_runs(const UserId& user, const SessionId& session) const;
  void sweep_run(const RunPtr& run);

  // training_endings.cc: runs of sessions that end
  bool end_idle_run(const UserId& user);
  void begin_ending(const RunPtr& run, SessionEnd why);
  void go_on_ending(const RunPtr& run);
  bool submit_ending(const RunPtr& run, OperationType type, Payload payload);
  static void note_ending_locked(Run& run, const RunOperation& operation, const Result<FutureValue>& result)
      TUFT_REQUIRES(run.mutex);
  void remove_adapter(const RunPtr& run);
  void drop_run(const RunPtr& run);
  Error unknown_run(const UserId& user, const RunId& run) const;

  // training_operations.cc: executing them
  void start(const RunPtr& run, const OperationPtr& operation);
  std::optional<Error> refusal_of(Run& run, const RunOperation& operation) const;
  void start_create(const RunPtr& run, const OperationPtr& operation);
  void start_unload(const RunPtr& run, const OperationPtr& operation);
  void start_forward_backward(const RunPtr& run, const OperationPtr& operation);
  void start_optim_step(const RunPtr& run, const OperationPtr& operation);
  void on_created(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::CreateAdapterResponse> result);
  void on_unloaded(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::RemoveAdapterResponse> result);
  void on_forward_backward(const RunPtr& run, const OperationPtr& operation,
                           Result<worker::v1::ForwardBackwardResponse> result);
  void on_optim_step(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::OptimStepResponse> result);
  actor::CallOptions begin_call(telemetry::Name name, RunOperation& operation);
  template <typename Response, typename Handler>
  actor::Callback<Response> answer_to(const RunPtr& run, const OperationPtr& operation, Handler handler);

  // training_records.cc: what telemetry hears
  void observe_runs();
  std::string_view state_of(const Run& run) const;
  void record_turn(RunOperation& operation) const;
  void record_pass(const Run& run, RunOperation& operation, const worker::v1::ForwardBackwardResponse& response) const;
  void record_optim_step(const Run& run, RunOperation& operation, const worker::v1::OptimStepResponse& response) const;
  void record_saved(const Run& run, const RunOperation& operation, const OperationKeys& keys,
                    const Checkpoint& saved) const;
  void record_checkpoint_failure(const RunOperation& operation, const OperationKeys& keys, const Error& error) const;

  // training_checkpoints.cc: saving
  void start_save(const RunPtr& run, const OperationPtr& operation);
  std::optional<Error> over_space(const Run& run, const Checkpoint& checkpoint, int64_t bytes) const;
  void save_state(const RunPtr& run, const OperationPtr& operation, Checkpoint checkpoint);
  // Of either kind of response.
  template <typename Response>
  void on_state_saved(const RunPtr& run, const OperationPtr& operation, Result<Response> result);
  void save_version(const RunPtr& run, const OperationPtr& operation);
  void on_saved(const RunPtr& run, const OperationPtr& operation);
  Result<FutureValue> finish_save(const RunPtr& run, const RunOperation& operation, const CheckpointStore::Ptr& saved);
  // training_publish.cc: versions for samplers
  struct Behind;
  void publish(const RunPtr& run, const OperationPtr& operation, Checkpoint checkpoint);
  void on_published(const RunPtr& run, const OperationPtr& operation,
                    Result<worker::v1::PublishAdapterResponse> result);
  void answer_before_file(const RunPtr& run, const OperationPtr& operation);
  void write_behind(const std::shared_ptr<Behind>& behind);
  void on_written_behind(const std::shared_ptr<Behind>& behind, const Result<worker::v1::SaveSamplerResponse>& result);
  void end_behind(const std::shared_ptr<Behind>& behind, const Status& status);

  void on_disk(const RunPtr& run, const OperationPtr& operation, bool begun,
               std::function<void(TrainingController&)> work);

  // training_loads.cc: loading, also into a model that is made for it
  Result<Submitted> create_from_checkpoint(const UserId& user, const LoadWeights& request,
                                           const telemetry::SpanContext& trace);
  Result<CheckpointStore::Ptr> find_loadable(const UserId& user, const LoadWeights& load) const;
  void start_load(const RunPtr& run, const OperationPtr& operation);
  void on_loaded(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::LoadStateResponse> result);
  void fail_load(const RunPtr& run, const OperationPtr& operation, Error error);

  // training_restore.cc: after a worker came back
  void restore(const RunPtr& run, uint64_t generation);
  void restore_weights(const RunPtr& run, uint64_t generation);
  void finish_restore(const RunPtr& run, uint64_t generation, const std::optional<Error>& load_error);
  void break_run(const RunPtr& run, uint64_t generation, const Error& error);

  const Parts parts_;
  mutable Mutex mutex_;
  std::unordered_map<RunId, RunPtr> runs_ TUFT_GUARDED_BY(mutex_);
  struct Tenant {
    std::unordered_set<RunPtr> runs;
    int counted = 0;  // without those that end
  };
  std::unordered_map<UserId, Tenant> tenants_ TUFT_GUARDED_BY(mutex_);  // who has runs
};

// "<session>:train:<n>", and under what its creation is found again.
RunId run_id_of(const SessionId& session, int64_t model_seq_id);
std::string creation_key(const RunId& run);
// Whether the base model can be trained so.
Status check_model(const CreateModel& request, const config::ModelConfig& model);
Submitted submitted(const FuturePtr& future);

worker::v1::CreateAdapterRequest adapter_request(const Run& run);
// Takes the server's checkpoint directory out of a message that a worker wrote.
Error without_path(Error error, const std::filesystem::path& root);

// Spans training_backend.*.
const telemetry::Tracer& training_backend_tracer();

}  // namespace tuft::control
