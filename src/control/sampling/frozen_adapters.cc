#include "control/sampling/frozen_adapters.h"

#include <utility>

#include "control/sampling/sample_operation.h"
#include "control/sampling/sampling_telemetry.h"
#include "control/types/operation_keys.h"

namespace tuft::control {
namespace {

Error sampler_gone() {
  return {ErrorCode::kCancelled, "not executed: its sampling session was dropped", "sampler_gone"};
}

Error version_lost() {
  return data_loss(
      "the worker was restarted before the weights of this sampling session were written to disk; call "
      "save_weights_for_sampler again",
      "sampler_lost");
}

OperationKeys keys_of(const FrozenAdapter& adapter) {
  OperationKeys keys;
  keys.base_model = adapter.backend->name();
  keys.lora_rank = adapter.lora_rank();
  return keys;
}

void unload(const FrozenAdapter& adapter, const std::string& worker_id) {
  auto span = std::make_shared<telemetry::Span>(sampling_backend_tracer().start_span(
      "sampling_backend.remove_adapter",
      {.attributes = KeyAttributes(keys_of(adapter), {{"tuft.lora_id", worker_id}}), .parent = {}}));
  worker::v1::RemoveSamplerRequest request;
  request.set_sampler_id(worker_id);
  adapter.backend->actor().remove_sampler(std::move(request), {.trace = span->context()},
                                          [span](const Result<worker::v1::RemoveSamplerResponse>& result) {
                                            if (!result.ok()) span->record_error(result.error());
                                            span->end();
                                          });
}

}  // namespace

std::string frozen_adapter_key(const ModelBackend& backend, const CheckpointPtr& checkpoint) {
  if (checkpoint == nullptr) return "base\n" + backend.name();
  return checkpoint->path.str() + '\n' + checkpoint->created_at + '\n' + std::to_string(checkpoint->future_number);
}

FrozenAdapterPtr FrozenAdapters::find_or_add_locked(const std::shared_ptr<ModelBackend>& backend,
                                                    const CheckpointPtr& checkpoint) {
  const std::string key = frozen_adapter_key(*backend, checkpoint);
  FrozenAdapterPtr& adapter = adapters_[key];
  if (adapter == nullptr) adapter = std::make_shared<FrozenAdapter>(key, backend, checkpoint);
  return adapter;
}

// ---- users

FrozenAdapterPtr FrozenAdapters::acquire(const std::shared_ptr<ModelBackend>& backend,
                                         const CheckpointPtr& checkpoint) {
  MutexLock lock(mutex_);
  FrozenAdapterPtr adapter = find_or_add_locked(backend, checkpoint);
  ++adapter->users_;
  adapter->last_used_ = clock_.monotonic();
  return adapter;
}

void FrozenAdapters::acquire(FrozenAdapter& adapter) {
  MutexLock lock(mutex_);
  ++adapter.users_;
  adapter.last_used_ = clock_.monotonic();
}

void FrozenAdapters::release(const FrozenAdapterPtr& adapter) {
  {
    MutexLock lock(mutex_);
    if (--adapter->users_ > 0 || adapter->checkpoint == nullptr) return;
    if (adapter->successor_ != nullptr && adapter->running_ > 0) return;  // drop_unused() drops it
    adapters_.erase(adapter->key);
  }
  drop(adapter);
}

void FrozenAdapters::release_stream(FrozenAdapter& adapter) {
  MutexLock lock(mutex_);
  --adapter.users_;
}

void FrozenAdapters::supersede(const FrozenAdapterPtr& older, const FrozenAdapterPtr& newer) {
  Waiting waiting;
  {
    MutexLock lock(mutex_);
    older->successor_ = newer;
    waiting.swap(older->waiting_);
  }
  wake_all(waiting, {});
}

// A stream stays on the weights that its client named.
FrozenAdapterPtr FrozenAdapters::newest_locked(const SampleOperation& operation) {
  FrozenAdapterPtr adapter = operation.adapter;
  while (adapter->successor_ != nullptr && !operation.keys->sampler.empty()) adapter = adapter->successor_;
  return adapter;
}

bool FrozenAdapters::is_busy(const FrozenAdapter& adapter) const {
  MutexLock lock(mutex_);
  return adapter.running_ > 0 || !adapter.waiting_.empty();
}

// Requires: the adapter was removed from adapters_, so that no new user finds it.
void FrozenAdapters::drop(const FrozenAdapterPtr& adapter) {
  std::string worker_id;
  Waiting waiting;
  {
    MutexLock lock(mutex_);
    if (adapter->is_loaded()) worker_id = adapter->worker_id_;
    adapter->loaded_incarnation_ = 0;
    adapter->dropped_ = true;
    waiting.swap(adapter->waiting_);
  }
  wake_all(waiting, sampler_gone());
  if (!worker_id.empty()) unload(*adapter, worker_id);
  if (adapter->checkpoint->ephemeral) checkpoints_.forget(adapter->checkpoint->path);
}

// ---- samples

Result<bool> FrozenAdapters::begin(const SampleOperationPtr& operation) {
  FrozenAdapterPtr adapter;
  {
    MutexLock lock(mutex_);
    adapter = newest_locked(*operation);
    operation->adapter = adapter;
    if (adapter->dropped_) return sampler_gone();
    if (adapter->is_loaded()) {
      ++adapter->running_;
      adapter->last_used_ = clock_.monotonic();
      return true;
    }
    if (adapter->load_error_ && adapter->backend->holds(adapter->load_error_incarnation_)) return *adapter->load_error_;
    if (adapter->lost_) return *adapter->lost_;
    adapter->waiting_.push_back(operation);
    if (!begin_load_locked(*adapter)) return false;
  }
  send_load(adapter, *operation->keys, operation->span.context());
  return false;
}

void FrozenAdapters::end(FrozenAdapter& adapter, bool lost) {
  MutexLock lock(mutex_);
  --adapter.running_;
  adapter.last_used_ = clock_.monotonic();
  if (lost) adapter.loaded_incarnation_ = 0;
}

std::optional<FrozenAdapters::AtWorker> FrozenAdapters::at_worker(const SampleOperationPtr& operation) {
  MutexLock lock(mutex_);
  if (const FrozenAdapterPtr newest = newest_locked(*operation);
      newest != operation->adapter && newest->is_loaded() && !newest->dropped_) {
    --operation->adapter->running_;
    ++newest->running_;
    newest->last_used_ = clock_.monotonic();
    operation->adapter = newest;
  }
  const FrozenAdapter& adapter = *operation->adapter;
  if (!adapter.is_loaded()) return std::nullopt;
  return AtWorker{adapter.worker_id_, adapter.loaded_incarnation_};
}

bool FrozenAdapters::stop_waiting(const SampleOperationPtr& operation) {
  MutexLock lock(mutex_);
  return std::erase(operation->adapter->waiting_, operation) > 0;
}

void FrozenAdapters::wake_all(const Waiting& waiting, const Status& status) const {
  for (const SampleOperationPtr& operation : waiting) wake_(operation, status);
}

// ---- loading

// Returns true if the caller must now call send_load().
bool FrozenAdapters::begin_load_locked(FrozenAdapter& adapter) {
  if (adapter.files_ == nullptr || adapter.loading_ || adapter.is_loaded()) return false;
  if (!adapter.backend->actor().ready() || adapter.backend->draining()) return false;
  adapter.loading_ = true;
  adapter.worker_id_ = adapter.checkpoint->path.str() + '#' + std::to_string(next_worker_id_++);
  return true;
}

void FrozenAdapters::load(const FrozenAdapterPtr& adapter, const OperationKeys& cause,
                          const telemetry::SpanContext& trace) {
  {
    MutexLock lock(mutex_);
    if (!begin_load_locked(*adapter)) return;
  }
  send_load(adapter, cause, trace);
}

void FrozenAdapters::send_load(const FrozenAdapterPtr& adapter, const OperationKeys& cause,
                               const telemetry::SpanContext& trace) {
  OperationKeys keys = cause;
  keys.base_model = adapter->backend->name();
  keys.lora_rank = adapter->lora_rank();
  worker::v1::AddSamplerRequest request;
  {
    MutexLock lock(mutex_);
    request.set_sampler_id(adapter->worker_id_);
    request.set_directory(adapter->files_->directory().string());
  }
  const uint64_t incarnation = adapter->backend->actor().incarnation();
  auto span = std::make_shared<telemetry::Span>(sampling_backend_tracer().start_span(
      "sampling_backend.add_adapter",
      {.attributes = KeyAttributes(keys, {{"tuft.lora_id", request.sampler_id()}}), .parent = trace}));
  adapter->backend->actor().add_sampler(
      std::move(request), {.trace = span->context(), .ids = call_ids(keys), .incarnation = incarnation},
      [weak = weak_from_this(), adapter, incarnation, span](Result<worker::v1::AddSamplerResponse> result) {
        Status status;
        if (!result.ok()) status = std::move(result).error();
        if (!status.ok()) span->record_error(status.error());
        span->end();
        if (const auto self = weak.lock()) self->on_loaded(adapter, incarnation, status);
      });
}

void FrozenAdapters::on_loaded(const FrozenAdapterPtr& adapter, uint64_t incarnation, const Status& result) {
  Status status;
  if (!result.ok()) status = without_path(result.error(), checkpoint_dir_);
  Waiting waiting;
  std::string unwanted;
  {
    MutexLock lock(mutex_);
    adapter->loading_ = false;
    adapter->load_error_.reset();
    if (status.ok() && adapter->dropped_) {
      unwanted = adapter->worker_id_;
    } else if (status.ok()) {
      adapter->loaded_incarnation_ = incarnation;
    } else if (!is_retryable(status.error().code)) {
      adapter->load_error_ = status.error();
      adapter->load_error_incarnation_ = incarnation;
    }
    waiting.swap(adapter->waiting_);
  }
  if (!unwanted.empty()) unload(*adapter, unwanted);
  wake_all(waiting, status);
}

// ---- published versions

std::string FrozenAdapters::new_worker_id(const CheckpointPath& path) {
  MutexLock lock(mutex_);
  return path.str() + '#' + std::to_string(next_worker_id_++);
}

void FrozenAdapters::take(const std::shared_ptr<ModelBackend>& backend, const CheckpointPtr& checkpoint,
                          PublishedVersion& version) {
  MutexLock lock(mutex_);
  const FrozenAdapterPtr adapter = find_or_add_locked(backend, checkpoint);
  if (adapter->loading_ || adapter->is_loaded()) return;
  adapter->worker_id_ = version.worker_id();
  adapter->loaded_incarnation_ = version.incarnation();
  adapter->last_used_ = clock_.monotonic();
  version.release();
}

bool FrozenAdapters::file_ended(const ModelBackend& backend, const CheckpointPtr& checkpoint) {
  Waiting waiting;
  {
    MutexLock lock(mutex_);
    const auto found = adapters_.find(frozen_adapter_key(backend, checkpoint));
    if (found == adapters_.end()) return false;
    FrozenAdapter& adapter = *found->second;
    adapter.files_ = checkpoint->files;
    if (adapter.files_ != nullptr) return true;
    adapter.lost_ = version_lost();
    if (!adapter.is_loaded()) waiting.swap(adapter.waiting_);
  }
  wake_all(waiting, version_lost());
  return true;
}

// ---- workers and time

std::vector<FrozenAdapterPtr> FrozenAdapters::all() const {
  std::vector<FrozenAdapterPtr> adapters;
  MutexLock lock(mutex_);
  adapters.reserve(adapters_.size());
  for (const auto& entry : adapters_) adapters.push_back(entry.second);
  return adapters;
}

// Wakes what waits, or starts the load that it waits for. An adapter that a former incarnation of the worker held is
// loaded although nobody waits, so that the next sample does not have to wait.
void FrozenAdapters::resume(const FrozenAdapterPtr& adapter) {
  Waiting waiting;
  bool must_load = false;
  {
    MutexLock lock(mutex_);
    if (adapter->is_loaded()) {
      waiting.swap(adapter->waiting_);
    } else if (adapter->loaded_incarnation_ > 0 || !adapter->waiting_.empty()) {
      must_load = begin_load_locked(*adapter);
    }
  }
  if (must_load) send_load(adapter, {}, {});
  wake_all(waiting, {});
}

void FrozenAdapters::on_worker_ready(const std::shared_ptr<ModelBackend>& backend) {
  for (const FrozenAdapterPtr& adapter : all()) {
    if (adapter->backend == backend) resume(adapter);
  }
}

void FrozenAdapters::sweep() {
  const Nanos oldest = clock_.monotonic() - kWorkerWait;
  for (const FrozenAdapterPtr& adapter : all()) {
    Waiting unserved;
    {
      MutexLock lock(mutex_);
      Waiting& waiting = adapter->waiting_;
      while (!adapter->loading_ && !adapter->backend->actor().ready() && !waiting.empty() &&
             waiting.front()->placed <= oldest) {
        unserved.push_back(std::move(waiting.front()));
        waiting.pop_front();
      }
    }
    wake_all(unserved, worker_starting(adapter->backend->name()));
    resume(adapter);
  }
  drop_unused();
}

void FrozenAdapters::drop_unused() {
  const Nanos oldest = clock_.monotonic() - kUnusedAdapterKept;
  std::vector<FrozenAdapterPtr> unused;
  {
    MutexLock lock(mutex_);
    std::erase_if(adapters_, [&](const auto& entry) {
      const FrozenAdapter& adapter = *entry.second;
      const bool used = adapter.checkpoint == nullptr || adapter.users_ > 0 || adapter.running_ > 0 || adapter.loading_;
      // A deleted checkpoint cannot be asked for again, so its files are freed at once.
      const bool deleted = adapter.files_ != nullptr && adapter.files_->abandoned();
      const bool superseded = adapter.successor_ != nullptr && adapter.waiting_.empty();
      const bool unneeded = !used && (deleted || superseded || adapter.last_used_ <= oldest);
      if (unneeded) unused.push_back(entry.second);
      return unneeded;
    });
  }
  for (const FrozenAdapterPtr& adapter : unused) drop(adapter);
}

void FrozenAdapters::shut_down() {
  for (const FrozenAdapterPtr& adapter : all()) {
    Waiting waiting;
    {
      MutexLock lock(mutex_);
      waiting.swap(adapter->waiting_);
    }
    wake_all(waiting, unavailable("the server is shutting down"));
  }
}

}  // namespace tuft::control
