// The frozen adapters that sampling sessions and streams sample from, and which of them are in which worker.
//
// A frozen adapter holds the weights of one checkpoint as they were when it was saved; the base model is one without
// weights of its own. Everybody who samples from one checkpoint shares one adapter. When a checkpoint is replaced or
// deleted, the adapter keeps the old files. An adapter enters a worker in one of two ways: it is loaded from its
// files in the background, or it is taken over from a PublishedVersion, which is in the worker before its files exist.
// It is loaded again after a restart of the worker; if that fails, the next sample loads it. It is lost if its files do
// not exist then. The worker itself decides which adapters it keeps in memory.
//
// Where a base model has several workers, each sample goes to one of them. A sampling session has a home, the worker
// that had least to do when it began. Its samples keep together there, because its prompts often begin alike and the
// worker has computed the beginning already, until that worker has kSpread sequences more than another one. A worker
// that has neither loaded the adapter nor begun to is chosen only if it has twice as many fewer, or if no other serves.
//
// Sampling sessions and streams use adapters. An adapter is dropped with the last sampling session that uses it. An
// adapter that only streams or nobody used stays loaded for kUnusedAdapterKept. Newer weights can supersede an adapter:
// samples that the worker does not have yet then use the newer adapter, and the older one is dropped when no sample
// runs on it any more.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/id.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/sampling/published_version.h"
#include "control/types/checkpoint.h"
#include "control/types/types.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

class SampleOperation;
using SampleOperationPtr = std::shared_ptr<SampleOperation>;

inline constexpr Nanos kUnusedAdapterKept = 300 * kSecond;
inline constexpr int64_t kSpread = 16;

// Belongs to FrozenAdapters and its lock.
struct SampleHome {
  std::optional<size_t> worker;  // its number among those of the base model; nothing before the first sample
};

// Belongs to FrozenAdapters and its lock, except the public members, which never change.
class FrozenAdapter {
 public:
  FrozenAdapter(std::string adapter_key, ModelPtr base, CheckpointPtr weights)
      : key(std::move(adapter_key)),
        model(std::move(base)),
        checkpoint(std::move(weights)),
        files_(checkpoint == nullptr ? nullptr : checkpoint->files),
        copies_(model->workers().size()) {}

  const std::string key;
  const ModelPtr model;
  const CheckpointPtr checkpoint;  // null: the base model

  int lora_rank() const { return checkpoint == nullptr ? 0 : checkpoint->lora_rank; }

 private:
  friend class FrozenAdapters;

  // The adapter in one worker of the base model.
  struct Copy {
    std::string worker_id;            // its id in the worker; a new one for each load
    uint64_t loaded_incarnation = 0;  // of the worker: of the life that holds it, or was the last to hold it; 0: none
    bool loading = false;
    std::optional<Error> load_error;
    uint64_t load_error_incarnation = 0;
  };

  const Copy& copy(const ModelBackend& worker) const { return copies_[worker.number()]; }
  Copy& copy(const ModelBackend& worker) { return copies_[worker.number()]; }
  bool is_loaded(const ModelBackend& worker) const {
    if (worker.draining()) return false;
    if (checkpoint == nullptr) return worker.actor().ready();
    return copy(worker).loaded_incarnation > 0 && worker.holds(copy(worker).loaded_incarnation);
  }
  bool is_loaded_somewhere() const {
    const auto& workers = model->workers();
    return std::any_of(workers.begin(), workers.end(), [&](const auto& worker) { return is_loaded(*worker); });
  }
  bool is_loading() const {
    return std::any_of(copies_.begin(), copies_.end(), [](const Copy& each) { return each.loading; });
  }

  std::shared_ptr<const CheckpointFiles> files_;  // null: the base model, or the files are not written yet
  std::optional<Error> lost_;                     // the files will never exist
  std::vector<Copy> copies_;                      // by number of the worker
  bool dropped_ = false;
  std::shared_ptr<FrozenAdapter> successor_;  // what superseded it
  int users_ = 0;                             // sampling sessions and streams
  int running_ = 0;                           // samples in a dispatch queue or at a worker
  Nanos last_used_ = 0;
  std::list<SampleOperationPtr> waiting_;  // until it is loaded somewhere
};
using FrozenAdapterPtr = std::shared_ptr<FrozenAdapter>;

// Returns the key of a frozen adapter. It differs for two saves of a checkpoint, even under the same name.
std::string frozen_adapter_key(std::string_view base_model, const CheckpointPtr& checkpoint);

// It has more than 25 methods: a short one for each event in the life of an adapter, under one lock.
//
// Thread-safe. The lock is never held over a call to the worker, to `wake` or to the checkpoints. Held by a shared_ptr:
// answers of the worker that arrive after its end are dropped.
class FrozenAdapters : public std::enable_shared_from_this<FrozenAdapters> {
 public:
  // Called for an operation that waited: without an error begin() is to be called again, otherwise the operation fails.
  using Wake = std::function<void(const SampleOperationPtr&, const Status&)>;

  // `owner` keeps alive everything that is passed as a reference, because an answer may arrive when nobody else does.
  FrozenAdapters(std::shared_ptr<void> owner, const Clock& clock, CheckpointStore& checkpoints,
                 std::filesystem::path checkpoint_dir)
      : owner_(std::move(owner)),
        clock_(clock),
        checkpoints_(checkpoints),
        checkpoint_dir_(std::move(checkpoint_dir)) {}
  // Requires: called once, before any other method.
  void on_wake(Wake wake) { wake_ = std::move(wake); }

  // Counts one more user. Ends with release() or release_stream().
  FrozenAdapterPtr acquire(const ModelPtr& model, const CheckpointPtr& checkpoint);
  void acquire(FrozenAdapter& adapter);
  // Ends the use by a sampling session. Drops the adapter of a checkpoint without users: the worker unloads it, samples
  // that wait for it fail with kCancelled "sampler_gone", and an ephemeral checkpoint is forgotten.
  void release(const FrozenAdapterPtr& adapter);
  void release_stream(FrozenAdapter& adapter);
  // From now on samples of sampling sessions that have not been sent to the worker use `newer` instead of `older`.
  void supersede(const FrozenAdapterPtr& older, const FrozenAdapterPtr& newer);
  // Returns true while samples run on the adapter or wait for it.
  bool is_busy(const FrozenAdapter& adapter) const;

  // Starts to load the adapter unless it is loaded somewhere, being loaded, without files or no worker is there.
  // `cause` names the sampling session or the sample that needs it, for the telemetry.
  void load(const FrozenAdapterPtr& adapter, const OperationKeys& cause, const telemetry::SpanContext& trace);

  // Chooses a worker (`operation->worker`), and counts a sample as running on `operation->adapter`, or on what
  // superseded it, which it then becomes. Returns true if it is loaded there; end() is then due. Returns false if the
  // operation waits for the adapter; Wake is then due, perhaps before this returns. Returns an error if the adapter was
  // dropped, is lost or cannot be loaded.
  Result<bool> begin(const SampleOperationPtr& operation);
  // `lost`: the worker does not hold the adapter any more, so that the next sample loads it again.
  void end(const SampleOperation& operation, bool lost = false);
  // An adapter in a life of the worker. Of the base model the id is empty, and every life has it.
  struct AtWorker {
    std::string id;
    uint64_t incarnation = 0;  // 0: any
  };
  // The sample of begin() goes to its worker now: to what superseded its adapter, if that is loaded there. Returns
  // nothing if the adapter is not loaded there any more.
  std::optional<AtWorker> at_worker(const SampleOperationPtr& operation);
  // Returns false if the operation does not wait; otherwise it is the caller's again.
  bool stop_waiting(const SampleOperationPtr& operation);

  // Returns a new id, under which a version of the checkpoint can be published.
  std::string new_worker_id(const Checkpoint& checkpoint);
  // Takes over `version`, which holds the weights of `checkpoint`. Leaves it where its worker has loaded the adapter
  // already. The files may not exist yet: file_ended() follows.
  void take(const ModelPtr& model, const CheckpointPtr& checkpoint, PublishedVersion& version);
  // The files of a version that was taken over are written (`checkpoint->files`), or will never be (no files): the
  // adapter then lives until the worker restarts. Returns false if nobody uses the adapter any more.
  bool file_ended(const CheckpointPtr& checkpoint);

  // A worker that was disconnected holds these samplers: uses those that are known, by the id or, after a
  // restart of the server, by the path and the number of the checkpoint in it, and removes the others. What this life
  // has loaded or is loading stays, whether the list names it or not. Requires: called once in each life, because a
  // later list also names what is just being published.
  void on_worker_back(ModelBackend& worker, uint64_t incarnation, const worker::v1::ListHoldingsResponse& held);
  // Loads again what a former incarnation of the worker held, and wakes what waits.
  void on_worker_ready(ModelBackend& worker);
  // Fails what waited for a worker for kWorkerWait, and drops adapters that were not used for kUnusedAdapterKept.
  void sweep();
  // Fails what waits with kUnavailable.
  void shut_down();

 private:
  using Waiting = std::list<SampleOperationPtr>;

  std::string new_worker_id_locked(const Checkpoint& checkpoint) TUFT_REQUIRES(mutex_);
  static FrozenAdapterPtr newest_locked(const SampleOperation& operation);
  FrozenAdapterPtr find_or_add_locked(const ModelPtr& model, const CheckpointPtr& checkpoint) TUFT_REQUIRES(mutex_);
  // Gives a `home` that is none yet a worker. Null for samples without a sampling session: those of a user keep
  // together.
  static const ModelBackendPtr& choose_locked(const FrozenAdapter& adapter, const OperationKeys& keys,
                                              SampleHome* home);
  bool begin_load_locked(FrozenAdapter& adapter, ModelBackend& worker) TUFT_REQUIRES(mutex_);
  void send_load(const FrozenAdapterPtr& adapter, ModelBackend& worker, const OperationKeys& cause,
                 const telemetry::SpanContext& trace);
  void on_loaded(const FrozenAdapterPtr& adapter, ModelBackend& worker, uint64_t incarnation, const Status& result);
  void drop(const FrozenAdapterPtr& adapter);
  void resume(const FrozenAdapterPtr& adapter, ModelBackend& worker);
  void wake_all(const Waiting& waiting, const Status& status) const;
  std::vector<FrozenAdapterPtr> all() const;
  void drop_unused();

  const std::shared_ptr<void> owner_;
  const Clock& clock_;
  CheckpointStore& checkpoints_;
  const std::filesystem::path checkpoint_dir_;
  Wake wake_;
  // A worker may hold samplers of a former server process, so no two processes give the same id.
  const std::string id_suffix_ = random_uuid().substr(0, 8);
  mutable Mutex mutex_;
  uint64_t next_worker_id_ TUFT_GUARDED_BY(mutex_) = 1;
  std::unordered_map<std::string, FrozenAdapterPtr> adapters_ TUFT_GUARDED_BY(mutex_);  // by key; without the dropped
};

}  // namespace tuft::control
