// A training run and its operations.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/byte_account.h"
#include "base/mutex.h"
#include "control/checkpoints/checkpoint_files.h"
#include "control/futures/future_store.h"
#include "control/persistence/persistence.h"
#include "control/persistence/restore_plan.h"
#include "control/sessions/sessions.h"
#include "control/training/operation_log.h"
#include "control/training/run_journal.h"
#include "control/training/step_clock.h"
#include "control/types/checkpoint.h"
#include "control/types/types.h"
#include "control/workers/model_backend.h"
#include "telemetry/trace.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

struct CheckpointSave;

// Where a run lives: one worker of its base model. worker() is thread-safe; move() requires the lock of the run.
class RunPlace {
 public:
  RunPlace(ModelPtr model, const ModelBackendPtr& worker, int rank)
      : model_(std::move(model)), rank_(rank), number_(worker->number()) {
    worker->add_ranks(rank_);
  }
  ~RunPlace() { worker()->add_ranks(-rank_); }
  RunPlace(const RunPlace&) = delete;
  RunPlace& operator=(const RunPlace&) = delete;

  const ModelPtr& model() const { return model_; }
  const ModelBackendPtr& worker() const { return model_->workers()[number_]; }
  void move(const ModelBackend& to) {
    worker()->add_ranks(-rank_);
    number_ = to.number();
    worker()->add_ranks(rank_);
  }

 private:
  const ModelPtr model_;
  const int rank_;
  std::atomic<size_t> number_;
};

// Belongs to the log of its run until its turn comes, then to the OperationHandler that executes it: one thread at a
// time. A client may cancel it while it is in the log, so the run's lock guards `payload` and `memory` until
// FutureStore::claim() has returned true.
struct RunOperation {
  using Payload = std::variant<std::monostate, worker::v1::ForwardBackwardRequest, OptimStep, SaveWeights,
                               SaveWeightsForSampler, SaveWeightsExternal, LoadWeights>;

  FuturePtr future;
  OperationType type = OperationType::kForward;
  std::optional<int64_t> seq_id;
  Nanos placed = 0;
  // Set when the request is invalid. The operation fails with it in its turn, so that it uses its seq_id up in order.
  std::optional<Error> refusal;
  Payload payload;
  ByteAccount::Hold memory;  // of the payload and of the operation itself
  bool creates_run = false;  // create_model, and a load_weights that creates its model
  int64_t cost = 64;         // estimated tokens (dispatch_queue.h)
  bool ends_run = false;     // submitted by the server because the session ends
  bool moves_run = false;    // submitted by the server because the worker ends; no quota stops it
  // A former server process gave it to a worker: a worker that has begun it is asked for the answer. Perhaps without a
  // payload.
  bool resumes = false;
  std::string call_id = {};   // by which the worker knows it; empty: the id of its request
  bool was_answered = false;  // by the worker, so that its effect is known
  bool was_put_back = false;  // into the log, because its worker was lost
  bool was_given_up = false;  // its worker was lost, and what that made of it does not count
  ModelBackendPtr slot_at;    // the worker in whose training queue it has a slot; null: it has none
  uint64_t incarnation = 0;   // of the worker that it was sent to
  Nanos started = 0;
  bool is_timed = false;         // the run's StepClock knows it; guarded by the run's lock
  Nanos waited = 0;              // in the worker
  std::string loss_fn;           // forward and forward_backward
  CheckpointPtr checkpoint;      // load_weights: the checkpoint to read
  telemetry::Span span;          // training_controller.*
  telemetry::Span backend_span;  // training_backend.*
};
using OperationPtr = std::shared_ptr<RunOperation>;

// Returns the key under which the submission of an operation with a seq_id is found again.
std::string submission_key(const RunId& run, int64_t seq_id);
// Returns the id by which a worker knows the operation (worker/kept_calls.h).
std::string call_id_of(const RunOperation& operation);

// The checkpoint from which a run's adapter is restored after its worker or the server was restarted.
struct RestorePoint {
  CheckpointPtr checkpoint;  // null: there is only `missing`
  bool with_optimizer = false;
  uint64_t number = 0;            // of the future that saved or loaded it
  std::optional<int64_t> seq_id;  // of the same operation
  // A gradient was pending when it was saved, and no checkpoint holds gradients: a client that goes back to this point
  // must be told of that, too. False after a restore that told it.
  bool lacks_gradient = false;
  CheckpointRef missing = {};  // what should be here, but was gone or could not be read when the server started
  CheckpointHoldPtr hold = nullptr;
};

// The state of a run whose session ends (run_expiry.h).
struct RunEnding {
  static constexpr int kTriesMax = 3;

  SessionEnd why = SessionEnd::kSilent;
  bool saves = true;     // a save has still to be tried
  int tries = 0;         // failed ones of the current step
  Nanos not_before = 0;  // of the next try, or of the next step

  // Takes note of the result of an operation of the run.
  void note(const RunOperation& operation, const Result<FutureValue>& result);
};

// The fields above the mutexes never change, except its place. Owned by RunTable; callbacks hold it too.
struct Run {
  Run(ModelPtr model, const ModelBackendPtr& worker, const LoraConfig& config)
      : place(std::move(model), worker, config.rank), lora(config), journal(worker->config().replicate) {}

  RunPlace place;
  RunId id;
  UserId user;
  SessionId session;
  const LoraConfig lora;
  Optimizer optimizer = Optimizer::kAdamW;
  uint64_t seed = 0;
  double lora_alpha = 0;
  std::map<std::string, std::string> user_metadata;
  bool metadata_apart = false;  // it has a record of its own
  std::string created_at;

  // The worker that it lives at.
  const ModelBackendPtr& backend() const { return place.worker(); }

  // Held while a record of the run is made and passed to Persistence, so that the newest record is written last. Locked
  // before `mutex`.
  mutable Mutex record_mutex;
  mutable bool metadata_written TUFT_GUARDED_BY(record_mutex) = false;  // if it lies apart
  mutable Mutex mutex;
  OperationLog<RunOperation> log TUFT_GUARDED_BY(mutex);
  OperationPtr running TUFT_GUARDED_BY(mutex);
  StepClock step_clock TUFT_GUARDED_BY(mutex);
  bool queued TUFT_GUARDED_BY(mutex) = false;     // waits in the training queue of the base model
  bool created TUFT_GUARDED_BY(mutex) = false;    // its adapter was created once
  Nanos last_request TUFT_GUARDED_BY(mutex) = 0;  // wall clock
  bool closed TUFT_GUARDED_BY(mutex) = false;
  std::optional<RunEnding> ending TUFT_GUARDED_BY(mutex);
  std::vector<std::string> target_modules TUFT_GUARDED_BY(mutex);

  // Incarnations of the worker: the one that holds the adapter, and the one in which it is being restored (0: none).
  uint64_t adapter_incarnation TUFT_GUARDED_BY(mutex) = 0;
  uint64_t restoring_incarnation TUFT_GUARDED_BY(mutex) = 0;
  Nanos drain_not_before TUFT_GUARDED_BY(mutex) = 0;  // of the next try of the server to save it
  std::string moved_name TUFT_GUARDED_BY(mutex);      // of those saves; each replaces the one before
  // Until then it is saved at the end of its step and goes to the worker `leaves_to`, though its own stays. 0: it
  // stays, too, at least until `leaves_not_before`.
  Nanos leaves_until TUFT_GUARDED_BY(mutex) = 0;
  size_t leaves_to TUFT_GUARDED_BY(mutex) = 0;
  Nanos leaves_not_before TUFT_GUARDED_BY(mutex) = 0;
  Nanos unheld_since TUFT_GUARDED_BY(mutex) = 0;        // its worker does not hold its adapter; 0: it does
  Nanos restore_not_before TUFT_GUARDED_BY(mutex) = 0;  // after its worker could not take it

  // For run_resumption.h: the request id of the newest operation that a worker answered, and whether the run waits,
  // after a restart of the server, for the worker that holds it.
  std::string last_operation TUFT_GUARDED_BY(mutex);
  // The seq_id of the newest operation that has ended.
  std::optional<int64_t> last_seq_id TUFT_GUARDED_BY(mutex);
  bool hopes TUFT_GUARDED_BY(mutex) = false;

  // It does not leave its worker now, nor soon, so that it is not stopped again and again.
  void stay_locked(Nanos now) TUFT_REQUIRES(mutex) {
    leaves_until = 0;
    leaves_not_before = now + kRest;
  }
  static constexpr Nanos kRest = 600 * kSecond;
  // A save of the server has failed, which began at `started`, and the worker does not end. Nothing else of the run
  // could start meanwhile, so the next try waits until the run has had most of the time. Else a run whose saves fail
  // slowly, because the bucket is away, would do nothing but save.
  void note_failed_save_locked(Nanos started, Nanos now) TUFT_REQUIRES(mutex) {
    if (leaves_until > 0) stay_locked(now);
    drain_not_before = now + std::max(kSecond, kTimeForOthers * (now - started));
  }
  static constexpr int kTimeForOthers = 4;
  // Why it could not be restored. All its operations fail with this, except unload_model and, if the worker holds its
  // adapter, load_weights, which ends it.
  std::optional<Error> broken TUFT_GUARDED_BY(mutex);
  std::optional<RestorePoint> restore_point TUFT_GUARDED_BY(mutex);
  RunJournal journal TUFT_GUARDED_BY(mutex);             // since restore_point
  bool weights_changed TUFT_GUARDED_BY(mutex) = false;   // since restore_point
  bool gradient_pending TUFT_GUARDED_BY(mutex) = false;  // no checkpoint holds it
  bool told_of_loss TUFT_GUARDED_BY(mutex) = false;      // an operation has failed because this worker ended
  std::optional<Error> notice TUFT_GUARDED_BY(mutex);    // the next operation fails with it, once

  // After a restart of the server: until the adapter is restored, and until the client has used a seq_id.
  bool from_store TUFT_GUARDED_BY(mutex) = false;
  bool numbers_lost TUFT_GUARDED_BY(mutex) = false;
  bool gradient_lost TUFT_GUARDED_BY(mutex) = false;  // one that the restore point lacks, see there

  // Whether a new restore point comes before the next operation, because the journal is long.
  bool saves_next_locked(Nanos now) const TUFT_REQUIRES(mutex) {
    return journal.is_long() && weights_changed && !gradient_pending && now >= drain_not_before && !closed && !broken;
  }

  // Returns whether its worker holds its adapter.
  bool has_adapter_locked() const TUFT_REQUIRES(mutex) {
    return created && backend()->actor().incarnation() == adapter_incarnation;
  }
  // Returns whether its adapter cannot be removed now: a worker that does not answer may answer again with the adapter
  // in its memory, and so may one that has not come back since the server was restarted.
  bool is_out_of_reach_locked() const TUFT_REQUIRES(mutex) {
    return hopes || restoring_incarnation > 0 || (has_adapter_locked() && !backend()->actor().ready());
  }

  // RunTable::take_attended() returns it.
  bool attended TUFT_GUARDED_BY(mutex) = false;
  // Returns whether nothing happens to the run until a client, its session or its worker does something.
  bool is_at_rest_locked() const TUFT_REQUIRES(mutex) {
    const bool is_at_work = running != nullptr || !log.empty() || ending || hopes || restoring_incarnation > 0;
    const bool is_restored = broken || !created || adapter_incarnation >= backend()->actor().incarnation();
    return closed || (!is_at_work && is_restored);
  }

  // Sizes of the newest checkpoints: the expected sizes of the next ones. 0: not known.
  int64_t training_bytes TUFT_GUARDED_BY(mutex) = 0;
  int64_t sampler_bytes TUFT_GUARDED_BY(mutex) = 0;

  // The file of a sampler save that has been answered is being written, and the next save waits for it.
  bool writes_behind TUFT_GUARDED_BY(mutex) = false;
  std::shared_ptr<CheckpointSave> after_write TUFT_GUARDED_BY(mutex);

  int next_training_name TUFT_GUARDED_BY(mutex) = 1;
  int next_sampler_name TUFT_GUARDED_BY(mutex) = 1;
  int next_ephemeral_name TUFT_GUARDED_BY(mutex) = 1;
};
using RunPtr = std::shared_ptr<Run>;

// A run as lists show it.
struct RunSummary {
  RunId id;
  SessionId session;
  std::string base_model;
  int lora_rank = 0;
  std::map<std::string, std::string> user_metadata;
  Nanos last_request = 0;  // wall clock
  bool broken = false;
  Optimizer optimizer = Optimizer::kAdamW;
  std::string created_at = {};  // ISO 8601
};
RunSummary summary_of(const Run& run);
ModelInfo info_of(const Run& run);

// The keys of the run itself, without a request.
OperationKeys keys_of(const Run& run);

// Frees the payload of an operation that has ended. A cancelled operation keeps its place in the log without it.
void release_payload(Run& run, RunOperation& operation);

// Returns the changes of the run's record after an operation; nothing while nothing is persisted or the run was never
// created. Requires run.record_mutex, held until the changes were passed to Persistence.
std::vector<store::Change> changes_of(const Run& run, const Persistence& persistence, Nanos wall)
    TUFT_REQUIRES(run.record_mutex);

// Returns the name of a checkpoint that the server saves by itself, for instance "expired-20260131T120000Z".
std::string name_of_save(std::string_view why, Nanos wall);

// Makes a run from its stored record.
RunPtr run_of(const RestoredRun& restored, const ModelPtr& model, const ModelBackendPtr& worker);

}  // namespace tuft::control
