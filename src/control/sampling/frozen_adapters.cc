#include "control/sampling/frozen_adapters.h"

#include <functional>
#include <set>
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
  keys.base_model = adapter.model->name();
  keys.lora_rank = adapter.lora_rank();
  return keys;
}

// By this another server process knows what a worker holds.
std::string begin_of_worker_ids(const Checkpoint& checkpoint) {
  return checkpoint.path.str() + '#' + std::to_string(checkpoint.future_number) + '-';
}

// Takes the id of a copy of the checkpoint out of `held`; empty if there is none.
std::string take_copy(const Checkpoint& checkpoint, std::set<std::string>& held) {
  if (checkpoint.future_number == 0) return {};  // it has come from elsewhere, and nothing tells its versions apart
  const std::string begin = begin_of_worker_ids(checkpoint);
  const auto found = held.lower_bound(begin);
  return found != held.end() && found->starts_with(begin) ? held.extract(found).value() : std::string();
}

// `incarnation`: of the worker; 0: any.
void unload(const OperationKeys& keys, ModelBackend& worker, const std::string& worker_id, uint64_t incarnation = 0) {
  auto span = std::make_shared<telemetry::Span>(sampling_backend_tracer().start_span(
      "sampling_backend.remove_adapter",
      {.attributes = KeyAttributes(keys, {{"tuft.lora_id", worker_id}}), .parent = {}}));
  worker::v1::RemoveSamplerRequest request;
  request.set_sampler_id(worker_id);
  worker.actor().remove_sampler(std::move(request), {.trace = span->context(), .incarnation = incarnation},
                                [span](const Result<worker::v1::RemoveSamplerResponse>& result) {
                                  if (!result.ok()) span->record_error(result.error());
                                  span->end();
                                });
}

}  // namespace

std::string frozen_adapter_key(std::string_view base_model, const CheckpointPtr& checkpoint) {
  if (checkpoint == nullptr) return "base\n" + std::string(base_model);
  return checkpoint->path.str() + '\n' + checkpoint->created_at + '\n' + std::to_string(checkpoint->future_number);
}

FrozenAdapterPtr FrozenAdapters::find_or_add_locked(const ModelPtr& model, const CheckpointPtr& checkpoint) {
  const std::string key = frozen_adapter_key(model->name(), checkpoint);
  FrozenAdapterPtr& adapter = adapters_[key];
  if (adapter == nullptr) adapter = std::make_shared<FrozenAdapter>(key, model, checkpoint);
  return adapter;
}

// ---- users

FrozenAdapterPtr FrozenAdapters::acquire(const ModelPtr& model, const CheckpointPtr& checkpoint) {
  MutexLock lock(mutex_);
  FrozenAdapterPtr adapter = find_or_add_locked(model, checkpoint);
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
  std::vector<std::pair<ModelBackendPtr, std::string>> loaded;
  std::shared_ptr<const CheckpointFiles> files;
  Waiting waiting;
  {
    MutexLock lock(mutex_);
    files = adapter->files_;
    for (const ModelBackendPtr& worker : adapter->model->workers()) {
      FrozenAdapter::Copy& copy = adapter->copy(*worker);
      if (adapter->is_loaded(*worker)) loaded.emplace_back(worker, copy.worker_id);
      copy.loaded_incarnation = 0;
    }
    adapter->dropped_ = true;
    waiting.swap(adapter->waiting_);
  }
  wake_all(waiting, sampler_gone());
  for (const auto& [worker, id] : loaded) unload(keys_of(*adapter), *worker, id);
  if (adapter->checkpoint->ephemeral) checkpoints_.forget(adapter->checkpoint->path, files);
}

// ---- samples

const ModelBackendPtr& FrozenAdapters::choose_locked(const FrozenAdapter& adapter, const OperationKeys& keys,
                                                     SampleHome* home) {
  const std::vector<ModelBackendPtr>& workers = adapter.model->workers();
  if (workers.size() == 1) return workers.front();
  const std::string& together = keys.sampler.empty() ? keys.user.str() : keys.sampler.str();
  size_t own = std::hash<std::string>()(together) % workers.size();
  // Returns the number of the worker with the fewest sequences; `own` if several have as few. Workers other than `own`
  // count as if they had `apart` more, and those without the adapter as if they had `absent` more.
  const auto least_busy = [&](int64_t apart, int64_t absent) {
    size_t best = own;
    std::optional<int64_t> least;
    for (size_t i = 0; i < workers.size(); ++i) {
      const ModelBackend& worker = *workers[i];
      const bool is_loaded = adapter.is_loaded(worker);
      if (!is_loaded && (!worker.serves() || adapter.files_ == nullptr)) continue;
      const DispatchQueue::Load at_worker = worker.sampling_queue().load();
      const int64_t load = at_worker.in_flight + static_cast<int64_t>(at_worker.waiting) + worker.unloaded_samples() +
                           (i == own ? 0 : apart) + (is_loaded || adapter.copy(worker).loading ? 0 : absent);
      if (least && (load > *least || (load == *least && i != own))) continue;
      least = load;
      best = i;
    }
    return best;
  };
  if (home != nullptr) {
    if (!home->worker) home->worker = least_busy(0, 0);
    own = *home->worker;
  }
  return workers[least_busy(kSpread, 2 * kSpread)];
}

Result<bool> FrozenAdapters::begin(const SampleOperationPtr& operation) {
  FrozenAdapterPtr adapter;
  ModelBackendPtr worker;
  {
    MutexLock lock(mutex_);
    adapter = newest_locked(*operation);
    worker = choose_locked(*adapter, *operation->keys, operation->home.get());
    operation->adapter = adapter;
    operation->worker = worker;
    if (adapter->dropped_) return sampler_gone();
    if (adapter->is_loaded(*worker)) {
      ++adapter->running_;
      adapter->last_used_ = clock_.monotonic();
      return true;
    }
    const FrozenAdapter::Copy& copy = adapter->copy(*worker);
    if (copy.load_error && worker->holds(copy.load_error_incarnation)) return *copy.load_error;
    if (adapter->lost_) return *adapter->lost_;
    adapter->waiting_.push_back(operation);
    worker->note_unloaded_samples(operation->num_samples);
    if (!begin_load_locked(*adapter, *worker)) return false;
  }
  send_load(adapter, *worker, *operation->keys, operation->span.context());
  return false;
}

void FrozenAdapters::end(const SampleOperation& operation, bool lost) {
  MutexLock lock(mutex_);
  FrozenAdapter& adapter = *operation.adapter;
  --adapter.running_;
  adapter.last_used_ = clock_.monotonic();
  if (lost) adapter.copy(*operation.worker).loaded_incarnation = 0;
}

std::optional<FrozenAdapters::AtWorker> FrozenAdapters::at_worker(const SampleOperationPtr& operation) {
  MutexLock lock(mutex_);
  const ModelBackend& worker = *operation->worker;
  if (const FrozenAdapterPtr newest = newest_locked(*operation);
      newest != operation->adapter && newest->is_loaded(worker) && !newest->dropped_) {
    --operation->adapter->running_;
    ++newest->running_;
    newest->last_used_ = clock_.monotonic();
    operation->adapter = newest;
  }
  const FrozenAdapter& adapter = *operation->adapter;
  if (!adapter.is_loaded(worker)) return std::nullopt;
  return AtWorker{adapter.copy(worker).worker_id, adapter.copy(worker).loaded_incarnation};
}

bool FrozenAdapters::stop_waiting(const SampleOperationPtr& operation) {
  MutexLock lock(mutex_);
  const bool waited = std::erase(operation->adapter->waiting_, operation) > 0;
  if (waited) operation->worker->note_unloaded_samples(-operation->num_samples);
  return waited;
}

void FrozenAdapters::wake_all(const Waiting& waiting, const Status& status) const {
  for (const SampleOperationPtr& operation : waiting) {
    operation->worker->note_unloaded_samples(-operation->num_samples);
    wake_(operation, status);
  }
}

// ---- loading

// Returns true if the caller must now call send_load().
bool FrozenAdapters::begin_load_locked(FrozenAdapter& adapter, ModelBackend& worker) {
  FrozenAdapter::Copy& copy = adapter.copy(worker);
  if (adapter.files_ == nullptr || copy.loading || adapter.is_loaded(worker) || !worker.serves()) return false;
  copy.loading = true;
  copy.worker_id = new_worker_id_locked(*adapter.checkpoint);
  return true;
}

void FrozenAdapters::load(const FrozenAdapterPtr& adapter, const OperationKeys& cause,
                          const telemetry::SpanContext& trace) {
  ModelBackendPtr worker;
  {
    MutexLock lock(mutex_);
    SampleHome none;
    worker = choose_locked(*adapter, cause, &none);
    if (!begin_load_locked(*adapter, *worker)) return;
  }
  send_load(adapter, *worker, cause, trace);
}

void FrozenAdapters::send_load(const FrozenAdapterPtr& adapter, ModelBackend& worker, const OperationKeys& cause,
                               const telemetry::SpanContext& trace) {
  OperationKeys keys = cause;
  keys.base_model = adapter->model->name();
  keys.lora_rank = adapter->lora_rank();
  worker::v1::AddSamplerRequest request;
  {
    MutexLock lock(mutex_);
    request.set_sampler_id(adapter->copy(worker).worker_id);
    request.set_directory(adapter->files_->directory().string());
  }
  const uint64_t incarnation = worker.actor().incarnation();
  auto span = std::make_shared<telemetry::Span>(sampling_backend_tracer().start_span(
      "sampling_backend.add_adapter",
      {.attributes = KeyAttributes(keys, {{"tuft.lora_id", request.sampler_id()}}), .parent = trace}));
  worker.actor().add_sampler(
      std::move(request), {.trace = span->context(), .ids = call_ids(keys), .incarnation = incarnation},
      [weak = weak_from_this(), adapter, &worker, incarnation, span](Result<worker::v1::AddSamplerResponse> result) {
        Status status;
        if (!result.ok()) status = std::move(result).error();
        if (!status.ok()) span->record_error(status.error());
        span->end();
        if (const auto self = weak.lock()) self->on_loaded(adapter, worker, incarnation, status);
      });
}

void FrozenAdapters::on_loaded(const FrozenAdapterPtr& adapter, ModelBackend& worker, uint64_t incarnation,
                               const Status& result) {
  Status status;
  if (!result.ok()) status = without_path(result.error(), checkpoint_dir_);
  Waiting waiting;
  std::string unwanted;
  {
    MutexLock lock(mutex_);
    FrozenAdapter::Copy& copy = adapter->copy(worker);
    copy.loading = false;
    copy.load_error.reset();
    // What a worker has refused is loaded for the next sample, and not for each sweep.
    const bool is_refused = !status.ok() && !actor::is_worker_lost(status.error());
    if (is_refused && !adapter->is_loaded(worker)) copy.loaded_incarnation = 0;
    if (status.ok() && adapter->dropped_) {
      unwanted = copy.worker_id;
    } else if (status.ok()) {
      copy.loaded_incarnation = incarnation;
    } else if (!is_retryable(status.error().code)) {
      copy.load_error = status.error();
      copy.load_error_incarnation = incarnation;
    } else if (actor::is_worker_lost(status.error()) && adapter->model->others_serve(worker)) {
      status = {};  // what waits is tried at another worker
    }
    waiting.swap(adapter->waiting_);
  }
  if (!unwanted.empty()) unload(keys_of(*adapter), worker, unwanted);
  wake_all(waiting, status);
}

// ---- published versions

std::string FrozenAdapters::new_worker_id(const Checkpoint& checkpoint) {
  MutexLock lock(mutex_);
  return new_worker_id_locked(checkpoint);
}

std::string FrozenAdapters::new_worker_id_locked(const Checkpoint& checkpoint) {
  return begin_of_worker_ids(checkpoint) + id_suffix_ + '-' + std::to_string(next_worker_id_++);
}

void FrozenAdapters::take(const ModelPtr& model, const CheckpointPtr& checkpoint, PublishedVersion& version) {
  MutexLock lock(mutex_);
  const FrozenAdapterPtr adapter = find_or_add_locked(model, checkpoint);
  FrozenAdapter::Copy& copy = adapter->copy(version.worker());
  if (copy.loading || adapter->is_loaded(version.worker())) return;
  copy.worker_id = version.worker_id();
  copy.loaded_incarnation = version.incarnation();
  adapter->last_used_ = clock_.monotonic();
  version.release();
}

bool FrozenAdapters::file_ended(const CheckpointPtr& checkpoint) {
  Waiting waiting;
  {
    MutexLock lock(mutex_);
    const auto found = adapters_.find(frozen_adapter_key(checkpoint->base_model, checkpoint));
    if (found == adapters_.end()) return false;
    FrozenAdapter& adapter = *found->second;
    adapter.files_ = checkpoint->files;
    if (adapter.files_ != nullptr) return true;
    adapter.lost_ = version_lost();
    if (!adapter.is_loaded_somewhere()) waiting.swap(adapter.waiting_);
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
void FrozenAdapters::resume(const FrozenAdapterPtr& adapter, ModelBackend& worker) {
  Waiting waiting;
  bool must_load = false;
  {
    MutexLock lock(mutex_);
    const bool waited_for = !adapter->waiting_.empty() && !adapter->is_loading();
    if (adapter->is_loaded(worker)) {
      waiting.swap(adapter->waiting_);
    } else if (adapter->copy(worker).loaded_incarnation > 0 || waited_for) {
      must_load = begin_load_locked(*adapter, worker);
    }
  }
  if (must_load) send_load(adapter, worker, {}, {});
  wake_all(waiting, {});
}

void FrozenAdapters::on_worker_back(ModelBackend& worker, uint64_t incarnation,
                                    const worker::v1::ListHoldingsResponse& held) {
  std::set<std::string> unknown(held.samplers().begin(), held.samplers().end());
  {
    MutexLock lock(mutex_);
    for (const auto& [key, adapter] : adapters_) {
      if (&adapter->model->facts() != &worker.facts()) continue;
      FrozenAdapter::Copy& there = adapter->copy(worker);
      // What is or was loaded in this life stays. It may be in the list before the answer to its load is here.
      if (there.loading || there.loaded_incarnation == incarnation) {
        if (unknown.erase(there.worker_id) > 0) there.loaded_incarnation = incarnation;
        continue;
      }
      std::string id;
      for (const FrozenAdapter::Copy& copy : adapter->copies_) {
        if (id.empty() && unknown.erase(copy.worker_id) > 0) id = copy.worker_id;
      }
      if (id.empty() && adapter->checkpoint != nullptr) id = take_copy(*adapter->checkpoint, unknown);
      if (id.empty()) continue;
      there.worker_id = std::move(id);
      there.loaded_incarnation = incarnation;
    }
  }
  OperationKeys keys;
  keys.base_model = worker.name();
  for (const std::string& id : unknown) unload(keys, worker, id, incarnation);
}

void FrozenAdapters::on_worker_ready(ModelBackend& worker) {
  for (const FrozenAdapterPtr& adapter : all()) {
    if (&adapter->model->facts() == &worker.facts()) resume(adapter, worker);
  }
}

void FrozenAdapters::sweep() {
  const Nanos oldest = clock_.monotonic() - kWorkerWait;
  for (const FrozenAdapterPtr& adapter : all()) {
    Waiting unserved;
    {
      MutexLock lock(mutex_);
      Waiting& waiting = adapter->waiting_;
      while (!adapter->is_loading() && !adapter->model->ready() && !waiting.empty() &&
             waiting.front()->placed <= oldest) {
        unserved.push_back(std::move(waiting.front()));
        waiting.pop_front();
      }
    }
    wake_all(unserved, worker_starting(adapter->model->name()));
    for (const ModelBackendPtr& worker : adapter->model->workers()) resume(adapter, *worker);
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
      const bool used =
          adapter.checkpoint == nullptr || adapter.users_ > 0 || adapter.running_ > 0 || adapter.is_loading();
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
