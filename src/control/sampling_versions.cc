// Adapters of samplers that came into the worker without a file.
#include <utility>

#include "control/operation_keys.h"
#include "control/sampling_controller.h"

namespace tuft::control {
namespace {

Error version_lost() {
  return data_loss(
      "the worker was restarted before the weights of this sampling session were written to disk; call "
      "save_weights_for_sampler again",
      "sampler_lost");
}

}  // namespace

std::string SamplingController::new_worker_id(const CheckpointPath& path) {
  MutexLock lock(mutex_);
  return path.str() + '#' + std::to_string(next_worker_id_++);
}

void SamplingController::take(const std::shared_ptr<ModelBackend>& backend, const CheckpointStore::Ptr& checkpoint,
                              PublishedVersion& version) {
  MutexLock lock(mutex_);
  const AdapterPtr adapter = adapter_for_locked(backend, checkpoint);
  if (adapter->loading || is_loaded(*adapter)) return;
  adapter->worker_id = version.worker_id();
  adapter->loaded_generation = version.generation();
  adapter->last_used = parts_.clock.monotonic();
  version.take();
}

bool SamplingController::file_written(const ModelBackend& backend, const CheckpointStore::Ptr& checkpoint) {
  MutexLock lock(mutex_);
  const auto found = adapters_.find(adapter_key(backend, checkpoint));
  if (found == adapters_.end()) return false;
  found->second->files = checkpoint->files;
  return true;
}

bool SamplingController::file_failed(const ModelBackend& backend, const CheckpointStore::Ptr& checkpoint) {
  std::deque<OperationPtr> left;
  {
    MutexLock lock(mutex_);
    const auto found = adapters_.find(adapter_key(backend, checkpoint));
    if (found == adapters_.end()) return false;
    found->second->lost = version_lost();
    if (!is_loaded(*found->second)) left.swap(found->second->waiting);
  }
  for (const OperationPtr& operation : left) fail(operation, version_lost());
  return true;
}

}  // namespace tuft::control
