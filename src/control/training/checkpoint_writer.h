// Writes checkpoints of runs. Every save takes this one path: room is checked, the worker writes the files into a
// prepared directory, the files are encrypted if that is wanted, and the directory is committed to the CheckpointStore.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "control/age/sealed_files.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/queues/disk_worker.h"
#include "control/sampling/published_version.h"
#include "control/sampling/sampler_table.h"
#include "control/sessions/sessions.h"
#include "control/training/lifetime.h"
#include "control/training/run.h"
#include "control/training/worker_calls.h"

namespace tuft::control {

// A save on its way to the disk. One thread at a time.
struct CheckpointSave {
  OperationPtr operation;
  Checkpoint checkpoint;
  std::optional<int64_t> ttl_seconds;
  std::unique_ptr<PublishedVersion> version;  // the copy in the worker that is saved; null: the run's adapter itself
  CheckpointPtr answered;          // what the operation was answered with; null: the answer waits for the file
  std::filesystem::path prepared;  // the place where the worker writes
  // The recipients who can decrypt an external checkpoint (none: it is not encrypted), the directory in which that is
  // done, and the encryption in progress.
  std::vector<age::Recipient> recipients = {};
  std::filesystem::path directory = {};
  std::unique_ptr<age::SealedFiles> sealed = nullptr;
};
using CheckpointSavePtr = std::shared_ptr<CheckpointSave>;

// Thread-safe.
class CheckpointWriter {
 public:
  struct Parts {
    const config::ServerConfig& config;
    const Clock& clock;
    CheckpointStore& checkpoints;
    DiskWorker& disk;
    const Sessions& sessions;
    SamplerTable& samplers;
    const WorkerCalls& calls;
    const Lifetime& lifetime;
  };
  explicit CheckpointWriter(const Parts& parts) : parts_(parts) {}

  // Returns the save that a save_weights or save_weights_for_sampler asks for, and chooses a name if the client gave
  // none. kAlreadyExists if it would replace a checkpoint and must not.
  Result<CheckpointSavePtr> begin(Run& run, const OperationPtr& operation) const;

  // Returns an error if this checkpoint with `bytes` exceeds limits.checkpoint_bytes_per_user_max or
  // checkpoints_per_user_max; what it replaces does not count, nor does a save of the server. First drops checkpoints
  // of unnamed saves that nobody samples from, because a loop that saves in each step would otherwise end at the limit.
  std::optional<Error> check_room(const Run& run, const Checkpoint& checkpoint, int64_t bytes) const;

  // Writes the checkpoint. `done` gets it, with its files, exactly once unless the server ends first: on the disk
  // thread, on the actor's thread, or during this call. A save that was answered before cannot be refused for want of
  // room, nor for a full disk queue.
  using Done = std::function<void(Result<CheckpointPtr>)>;
  void write(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const;

  // [disk] Lets what the server itself has saved of the run expire now, because the run has another restore point.
  void end_servers_save(const Run& run) const;

  // Removes an ephemeral checkpoint without a sampler.
  void forget(const Checkpoint& checkpoint) const { parts_.checkpoints.forget(checkpoint.path, checkpoint.files); }

 private:
  CheckpointPtr servers_save_of(const Run& run) const;
  void prepare(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const;
  void call_worker(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const;
  template <typename Response>
  actor::Callback<Response> after_write(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const;
  void seal(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const;
  void commit(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const;

  const Parts parts_;
};

}  // namespace tuft::control
