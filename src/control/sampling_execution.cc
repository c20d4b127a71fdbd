#include <utility>

#include "control/operation_keys.h"
#include "control/sampling_controller.h"
#include "control/training_controller.h"  // without_path
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {
namespace {

Error cancelled() {
  return {ErrorCode::kCancelled, "the request was cancelled", "cancelled"};
}

}  // namespace

Error SamplingController::sampler_gone() {
  return {ErrorCode::kCancelled, "not executed: its sampling session was given up", "sampler_gone"};
}

bool SamplingController::is_loaded(const Adapter& adapter) {
  if (adapter.checkpoint == nullptr) return adapter.backend->actor().ready();
  return adapter.loaded_generation > 0 && adapter.backend->holds(adapter.loaded_generation);
}

// True: the caller now calls load().
bool SamplingController::begin_load_locked(Adapter& adapter) {
  if (adapter.files == nullptr || adapter.loading || is_loaded(adapter)) return false;
  if (!adapter.backend->actor().ready()) return false;
  adapter.loading = true;
  adapter.worker_id = adapter.checkpoint->path.str() + '#' + std::to_string(next_worker_id_++);
  return true;
}

void SamplingController::dispatch(const AdapterPtr& adapter, const OperationPtr& operation) {
  std::optional<Error> refusal;
  bool must_load = false;
  {
    MutexLock lock(mutex_);
    if (operation->stream != nullptr && operation->stream->cancelled) {
      refusal = cancelled();
    } else if (adapter->released) {
      refusal = sampler_gone();
    } else if (is_loaded(*adapter)) {
      ++adapter->running;
      adapter->last_used = parts_.clock.monotonic();
    } else if (adapter->load_error && adapter->backend->holds(adapter->load_error_generation)) {
      refusal = adapter->load_error;
    } else if (adapter->lost) {
      refusal = adapter->lost;
    } else {
      adapter->waiting.push_back(operation);
      must_load = begin_load_locked(*adapter);
      if (!must_load) return;
    }
  }
  if (refusal) return fail(operation, *refusal);
  if (must_load) return load(adapter, *operation->keys, operation->span.context());
  enqueue(adapter, operation);
}

void SamplingController::enqueue(const AdapterPtr& adapter, const OperationPtr& operation) {
  adapter->backend->sampling_queue().submit({.user = operation->user,
                                             .cost = operation->cost,
                                             .slots = operation->num_samples,
                                             .start = [weak = weak_from_this(), adapter, operation] {
                                               const auto self = weak.lock();
                                               return self != nullptr && self->start_turn(adapter, operation);
                                             }});
}

// False: it needs no slot. Much may have happened while it waited for its turn.
bool SamplingController::start_turn(const AdapterPtr& adapter, const OperationPtr& operation) {
  std::optional<Error> refusal;
  bool again = false;
  if (operation->future != nullptr && parts_.futures.has_ended(*operation->future)) refusal = cancelled();
  {
    MutexLock lock(mutex_);
    if (shut_down_) refusal = unavailable("the server is shutting down", "shutting_down");
    if (operation->dropped || (operation->stream != nullptr && operation->stream->cancelled)) refusal = cancelled();
    again = !refusal && !is_loaded(*adapter);
    if (refusal || again) --adapter->running;
    operation->has_turn = !refusal && !again;
    if (operation->has_turn) operation->request.set_sampler_id(adapter->worker_id);
  }
  if (refusal) fail(operation, *refusal);
  if (again) dispatch(adapter, operation);
  if (refusal || again) return false;
  start(adapter, operation);
  return true;
}

// `cause`: the sampler or the sample that it is loaded for; empty keys after a worker came back.
void SamplingController::load(const AdapterPtr& adapter, const OperationKeys& cause,
                              const telemetry::SpanContext& trace) {
  OperationKeys keys = cause;
  keys.base_model = adapter->backend->name();
  keys.lora_rank = adapter->checkpoint->lora_rank;
  worker::v1::AddSamplerRequest request;
  {
    MutexLock lock(mutex_);
    request.set_sampler_id(adapter->worker_id);
    request.set_directory(adapter->files->directory().string());
  }
  const uint64_t generation = adapter->backend->actor().generation();
  auto span = std::make_shared<telemetry::Span>(sampling_backend_tracer().start_span(
      "sampling_backend.add_adapter",
      {.attributes = KeyAttributes(keys, {{"tuft.lora_id", request.sampler_id()}}), .parent = trace}));
  adapter->backend->actor().add_sampler(
      std::move(request), {.trace = span->context(), .ids = call_ids(keys)},
      [weak = weak_from_this(), adapter, generation, span](Result<worker::v1::AddSamplerResponse> result) {
        Status status;
        if (!result.ok()) status = std::move(result).error();
        if (!status.ok()) span->record_error(status.error());
        span->end();
        if (const auto self = weak.lock()) self->on_loaded(adapter, generation, status);
      });
}

void SamplingController::on_loaded(const AdapterPtr& adapter, uint64_t generation, const Status& result) {
  std::optional<Error> error;
  if (!result.ok()) error = without_path(result.error(), parts_.config.checkpoint_dir);
  std::deque<OperationPtr> waiting;
  std::string unwanted;
  {
    MutexLock lock(mutex_);
    adapter->loading = false;
    adapter->load_error.reset();
    if (!error && adapter->released) {
      unwanted = adapter->worker_id;
    } else if (!error) {
      adapter->loaded_generation = generation;
    } else if (!is_retryable(error->code)) {
      adapter->load_error = error;
      adapter->load_error_generation = generation;
    }
    waiting.swap(adapter->waiting);
  }
  if (!unwanted.empty()) unload(adapter, unwanted);
  for (const OperationPtr& operation : waiting) {
    if (error) {
      fail(operation, *error);
    } else {
      dispatch(adapter, operation);
    }
  }
}

void SamplingController::unload(const AdapterPtr& adapter, const std::string& worker_id) {
  OperationKeys keys;
  keys.base_model = adapter->backend->name();
  keys.lora_rank = adapter->checkpoint->lora_rank;
  auto span = std::make_shared<telemetry::Span>(sampling_backend_tracer().start_span(
      "sampling_backend.remove_adapter",
      {.attributes = KeyAttributes(keys, {{"tuft.lora_id", worker_id}}), .parent = {}}));
  worker::v1::RemoveSamplerRequest request;
  request.set_sampler_id(worker_id);
  adapter->backend->actor().remove_sampler(std::move(request), {.trace = span->context()},
                                           [span](const Result<worker::v1::RemoveSamplerResponse>& result) {
                                             if (!result.ok()) span->record_error(result.error());
                                             span->end();
                                           });
}

void SamplingController::start(const AdapterPtr& adapter, const OperationPtr& operation) {
  begin_call(*adapter, *operation);
  const actor::CallOptions options{.trace = operation->backend_span.context(), .ids = call_ids(*operation->keys)};
  auto done = [weak = weak_from_this(), adapter, operation](Result<worker::v1::SampleResponse> result) {
    if (!result.ok()) operation->backend_span.record_error(result.error());
    if (result.ok()) describe_answer(*operation, *result);
    operation->backend_span.end();
    if (const auto self = weak.lock()) return self->on_sampled(adapter, operation, std::move(result));
    if (operation->stream != nullptr) operation->stream->listener.done(unavailable("the server is shutting down"));
  };
  actor::ModelActor& actor = adapter->backend->actor();
  if (operation->stream == nullptr) {
    return parts_.futures.on_cancel(*operation->future,
                                    actor.sample(std::move(operation->request), options, std::move(done)));
  }
  hold_cancel(operation, actor.stream_sample(std::move(operation->request), options, token_relay(operation), done));
}

void SamplingController::on_sampled(const AdapterPtr& adapter, const OperationPtr& operation,
                                    Result<worker::v1::SampleResponse> result) {
  {
    MutexLock lock(mutex_);
    --adapter->running;
    adapter->last_used = parts_.clock.monotonic();
    // The worker does not have it any more: the next sample brings it from its files.
    if (!result.ok() && result.error().reason == "adapter_page_lost") adapter->loaded_generation = 0;
  }
  if (result.ok()) {
    if (operation->future != nullptr) parts_.futures.mark_started(*operation->future, result->queue_seconds());
    record_sample(*operation, *result);
    operation->span.end();
    complete(operation, std::move(result));
  } else {
    fail(operation, result.error());
  }
  adapter->backend->sampling_queue().release(operation->num_samples);
}

std::vector<SamplingController::AdapterPtr> SamplingController::all_adapters() const {
  std::vector<AdapterPtr> adapters;
  MutexLock lock(mutex_);
  adapters.reserve(adapters_.size());
  for (const auto& entry : adapters_) adapters.push_back(entry.second);
  return adapters;
}

// Sends what waits, or starts the load that it waits for. An adapter that a former life of the worker had is loaded
// again although nobody waits, so that the next sample need not.
void SamplingController::resume(const AdapterPtr& adapter) {
  std::deque<OperationPtr> waiting;
  bool must_load = false;
  {
    MutexLock lock(mutex_);
    if (is_loaded(*adapter)) {
      waiting.swap(adapter->waiting);
    } else if (adapter->loaded_generation > 0 || !adapter->waiting.empty()) {
      must_load = begin_load_locked(*adapter);
    }
  }
  if (must_load) load(adapter, {}, {});
  for (const OperationPtr& operation : waiting) dispatch(adapter, operation);
}

void SamplingController::on_worker_ready(const std::shared_ptr<ModelBackend>& backend) {
  for (const AdapterPtr& adapter : all_adapters()) {
    if (adapter->backend == backend) resume(adapter);
  }
}

void SamplingController::sweep() {
  const Nanos oldest = parts_.clock.monotonic() - kWorkerWait;
  for (const AdapterPtr& adapter : all_adapters()) {
    std::vector<OperationPtr> unserved;
    {
      MutexLock lock(mutex_);
      while (!adapter->loading && !adapter->backend->actor().ready() && !adapter->waiting.empty() &&
             adapter->waiting.front()->placed <= oldest) {
        unserved.push_back(std::move(adapter->waiting.front()));
        adapter->waiting.pop_front();
      }
    }
    for (const OperationPtr& operation : unserved) fail(operation, worker_starting(adapter->backend->name()));
    resume(adapter);
  }
  drop_unused_adapters();
}

void SamplingController::shut_down() {
  {
    MutexLock lock(mutex_);
    shut_down_ = true;
  }
  cancel_streams();
  for (const AdapterPtr& adapter : all_adapters()) {
    std::deque<OperationPtr> left;
    {
      MutexLock lock(mutex_);
      left.swap(adapter->waiting);
    }
    for (const OperationPtr& operation : left) fail(operation, unavailable("the server is shutting down"));
  }
}

}  // namespace tuft::control
