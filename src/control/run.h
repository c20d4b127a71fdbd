// A training run and its operations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/byte_account.h"
#include "base/mutex.h"
#include "control/checkpoint.h"
#include "control/future_store.h"
#include "control/model_backend.h"
#include "control/operation_log.h"
#include "control/published_version.h"
#include "control/records.h"
#include "control/sessions.h"
#include "control/types.h"
#include "telemetry/trace.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

// Owned by the log of its run until its turn comes, then by whoever executes it: one thread at a time. But a client may
// cancel it in the log: until FutureStore::claim() said yes, payload and memory are under the run's lock.
struct RunOperation {
  FuturePtr future;
  OperationType type = OperationType::kForward;
  std::optional<int64_t> seq_id;
  Nanos placed = 0;
  std::optional<Error>
      refusal;  // known to fail; it does so when its turn comes, so that its number is used up in order
  std::variant<std::monostate, worker::v1::ForwardBackwardRequest, OptimStep, SaveWeights, SaveWeightsForSampler,
               LoadWeights>
      payload;
  ByteAccount::Hold memory;  // what the payload and the operation itself take
  bool creates_run = false;  // create_model, and a load_weights that makes its model
  int64_t cost = 64;         // estimated tokens (dispatch_queue.h)
  bool ends_run = false;     // because its session ends
  bool has_slot = false;     // of the base model's training queue
  uint64_t generation = 0;   // of the worker's life that it was sent to
  Nanos started = 0;
  std::string loss_fn;                           // of a pass
  std::shared_ptr<const Checkpoint> checkpoint;  // that a load reads
  std::unique_ptr<Checkpoint> saved;             // that a save makes, and where the worker writes it
  std::filesystem::path prepared;
  std::unique_ptr<PublishedVersion> version;  // in the worker, of a save for samplers
  telemetry::Span span;                       // training_controller.*
  telemetry::Span backend_span;               // training_backend.*
};
using OperationPtr = std::shared_ptr<RunOperation>;

// Where a run's adapter comes back from after its worker, or the server, was restarted.
struct RestorePoint {
  std::shared_ptr<const Checkpoint> checkpoint;
  bool with_optimizer = false;
  uint64_t number = 0;            // of the operation that made or loaded it
  std::optional<int64_t> seq_id;  // of the same
};

// A run whose session ends: it is saved where it has changed, taken out of the worker, and gone.
struct RunEnding {
  SessionEnd why = SessionEnd::kSilent;
  bool saves = true;     // still to be tried
  int tries = 0;         // that failed
  Nanos not_before = 0;  // the next
};

struct Run {
  RunId id;
  UserId user;
  SessionId session;
  std::shared_ptr<ModelBackend> backend;
  LoraConfig lora;
  uint64_t seed = 0;
  double lora_alpha = 0;
  std::map<std::string, std::string> user_metadata;
  std::string created_at;

  // Held while a record of it is made and given to the store, so that the newest is the last. Taken before `mutex`.
  mutable Mutex record_mutex;
  mutable Mutex mutex;
  OperationLog<RunOperation> log TUFT_GUARDED_BY(mutex);
  OperationPtr running TUFT_GUARDED_BY(mutex);
  bool queued TUFT_GUARDED_BY(mutex) = false;     // waits for its user's turn at the worker
  bool created TUFT_GUARDED_BY(mutex) = false;    // its adapter was made once
  Nanos last_request TUFT_GUARDED_BY(mutex) = 0;  // wall clock
  bool closed TUFT_GUARDED_BY(mutex) = false;
  std::optional<RunEnding> ending TUFT_GUARDED_BY(mutex);
  std::vector<std::string> target_modules TUFT_GUARDED_BY(mutex);

  // The adapter is in the worker's life adapter_generation, and on its way into restoring_generation.
  uint64_t adapter_generation TUFT_GUARDED_BY(mutex) = 0;
  uint64_t restoring_generation TUFT_GUARDED_BY(mutex) = 0;
  std::optional<Error> broken TUFT_GUARDED_BY(mutex);  // it could not be brought back
  std::optional<RestorePoint> restore_point TUFT_GUARDED_BY(mutex);
  bool weights_changed TUFT_GUARDED_BY(mutex) = false;   // since restore_point
  bool gradient_pending TUFT_GUARDED_BY(mutex) = false;  // no checkpoint holds it
  bool told_of_loss TUFT_GUARDED_BY(mutex) = false;      // an operation failed because this life of the worker ended
  std::optional<Error> notice TUFT_GUARDED_BY(mutex);    // the next operation fails with it, once

  // The server was restarted: until its adapter is back, and until its client has used a number.
  bool from_store TUFT_GUARDED_BY(mutex) = false;
  bool numbers_lost TUFT_GUARDED_BY(mutex) = false;

  // Of its newest saves: what the next ones will take. 0: not known.
  int64_t training_bytes TUFT_GUARDED_BY(mutex) = 0;
  int64_t sampler_bytes TUFT_GUARDED_BY(mutex) = 0;

  // The file of a version that is answered for is being written, and the save that waits until it is there.
  bool writes_behind TUFT_GUARDED_BY(mutex) = false;
  OperationPtr after_write TUFT_GUARDED_BY(mutex);

  int next_training_name TUFT_GUARDED_BY(mutex) = 1;
  int next_sampler_name TUFT_GUARDED_BY(mutex) = 1;
  int next_ephemeral_name TUFT_GUARDED_BY(mutex) = 1;
};
using RunPtr = std::shared_ptr<Run>;

// What lists show of it.
struct RunSummary {
  RunId id;
  SessionId session;
  std::string base_model;
  int lora_rank = 0;
  std::map<std::string, std::string> user_metadata;
  Nanos last_request = 0;  // wall clock
  bool broken = false;
};
RunSummary summary_of(const Run& run);

// What the persistent store keeps of it.
RunRecord record_of_locked(const Run& run, std::string now) TUFT_REQUIRES(run.mutex);

// Without a request: of the run itself.
inline OperationKeys keys_of(const Run& run) {
  OperationKeys keys;
  keys.session = run.session;
  keys.run = run.id;
  keys.base_model = run.backend->name();
  keys.lora_rank = run.lora.rank;
  return keys;
}

}  // namespace tuft::control
