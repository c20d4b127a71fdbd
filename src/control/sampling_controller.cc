#include "control/sampling_controller.h"

#include <algorithm>
#include <utility>

#include "control/operation_keys.h"
#include "control/quota.h"
#include "control/sample_request.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {

const telemetry::Tracer& sampling_controller_tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.sampling_controller");
  return instance;
}

// Each save of a checkpoint is another one, even under the same name.
std::string SamplingController::adapter_key(const ModelBackend& backend, const CheckpointStore::Ptr& checkpoint) {
  if (checkpoint == nullptr) return "base\n" + backend.name();
  return checkpoint->path.str() + '\n' + checkpoint->created_at + '\n' + std::to_string(checkpoint->future_number);
}

SamplingController::SamplingController(const Parts& parts) : parts_(parts) {}

Result<SamplerId> SamplingController::create_session(const UserId& user, const CreateSamplingSession& request,
                                                     const telemetry::SpanContext& trace) {
  TUFT_TRY(parts_.sessions.touch(user, request.session));
  TUFT_TRY(parts_.persistence.available());
  if (request.seq_id < 0) {
    return invalid_argument("sampling_session_seq_id must not be negative", "invalid_sampling_session_seq_id");
  }
  if (!request.model_path.empty()) {
    TUFT_ASSIGN(const CheckpointStore::Ptr checkpoint, parts_.checkpoints.find_visible(user, request.model_path));
    return create_on(user, request.session, request.seq_id, checkpoint, trace);
  }
  if (request.base_model.empty()) return invalid_argument("give base_model or model_path", "nothing_to_sample_from");
  TUFT_ASSIGN(const auto backend, parts_.backends.find(request.base_model));
  return add(user, request.session, request.seq_id, backend, nullptr, trace);
}

Result<SamplerId> SamplingController::create_on(const UserId& user, const SessionId& session, int64_t seq_id,
                                                const CheckpointStore::Ptr& checkpoint,
                                                const telemetry::SpanContext& trace) {
  TUFT_ASSIGN(const auto backend, parts_.backends.find(checkpoint->base_model));
  return add(user, session, seq_id, backend, checkpoint, trace);
}

SamplingController::AdapterPtr SamplingController::adapter_for_locked(const std::shared_ptr<ModelBackend>& backend,
                                                                      const CheckpointStore::Ptr& checkpoint) {
  AdapterPtr& adapter = adapters_[adapter_key(*backend, checkpoint)];
  if (adapter == nullptr) {
    adapter = std::make_shared<Adapter>();
    adapter->key = adapter_key(*backend, checkpoint);
    adapter->backend = backend;
    adapter->checkpoint = checkpoint;
    if (checkpoint != nullptr) adapter->files = checkpoint->files;
  }
  return adapter;
}

Result<SamplerId> SamplingController::add(const UserId& user, const SessionId& session, int64_t seq_id,
                                          const std::shared_ptr<ModelBackend>& backend,
                                          const CheckpointStore::Ptr& checkpoint, const telemetry::SpanContext& trace) {
  SamplerId id(session.str() + ":sample:" + std::to_string(seq_id));
  OperationKeys keys;
  keys.session = session;
  keys.sampler = id;
  keys.base_model = backend->name();
  keys.lora_rank = checkpoint == nullptr ? 0 : checkpoint->lora_rank;
  telemetry::Span span = sampling_controller_tracer().start_span("sampling_controller.create_sampling_session",
                                                                 {.attributes = KeyAttributes(keys), .parent = trace});
  const auto refuse = [&span](Error error) {
    span.record_error(error);
    return error;
  };
  if (!backend->config().sampling) {
    return refuse(invalid_argument("base model " + backend->name() + " is configured without the capability sampling",
                                   "sampling_disabled"));
  }
  const int limit = parts_.config.limits.samplers_per_user_max;
  AdapterPtr adapter;
  bool must_load = false;
  for (bool reclaimed = false; adapter == nullptr; reclaimed = true) {
    {
      MutexLock lock(mutex_);
      if (const auto found = samplers_.find(id); found != samplers_.end()) {
        if (found->second.adapter->key == adapter_key(*backend, checkpoint)) return id;
        return refuse(invalid_argument("this sampling_session_seq_id was used for another model of this session",
                                       "repeated_key_mismatch"));
      }
      const auto own = samplers_by_user_.find(user);
      if ((own == samplers_by_user_.end() ? 0 : own->second.size()) < static_cast<size_t>(limit)) {
        adapter = adapter_for_locked(backend, checkpoint);
        ++adapter->users;
        adapter->last_used = parts_.clock.monotonic();
        samplers_.emplace(id, Sampler{user, session, adapter, adapter->last_used});
        samplers_by_user_[user].insert(id);
        must_load = begin_load_locked(*adapter);
        // Under the lock, so that a repetition that finds it waits for this write, too.
        if (parts_.persistence.enabled()) {
          SamplerRecord record{id, user, session, backend->name(), seq_id, {}, iso_time(parts_.clock.wall())};
          if (checkpoint != nullptr) {
            record.checkpoint = CheckpointRef{checkpoint->path.str(), checkpoint->future_number};
          }
          parts_.persistence.write({parts_.persistence.put(record)}, span.context());
        }
      }
    }
    if (adapter == nullptr && (reclaimed || !make_room(user))) {
      return refuse(over_quota(Quota::kSamplers, "you have " + std::to_string(limit) + " sampling sessions",
                               "end some clients (those of a session that was silent for ten minutes make room by "
                               "themselves)"));
    }
  }
  backend->instruments().add_sampler(1);
  const telemetry::ContextScope scope(span.context());
  telemetry::log_info("sampling_session.created", "sampling session created",
                      KeyAttributes(keys, {{"tuft.has_lora", checkpoint != nullptr}}));
  if (checkpoint != nullptr && !checkpoint->ephemeral) {
    parts_.usage.audit({.action = AuditAction::kCheckpointLoaded,
                        .user = user,
                        .owner = checkpoint->owner,
                        .session = session,
                        .run = checkpoint->path.run,
                        .tinker_path = checkpoint->path.str(),
                        .purpose = "sampling"});
  }
  if (must_load) load(adapter, keys, span.context());
  // The session may have begun to end before it saw the sampler.
  if (!parts_.sessions.belongs_to(user, session)) {
    remove(id);
    return refuse(unknown_sampler(user, id));
  }
  return id;
}

void SamplingController::restore(const SamplerRecord& record, const std::shared_ptr<ModelBackend>& backend,
                                 const CheckpointStore::Ptr& checkpoint) {
  {
    MutexLock lock(mutex_);
    const Nanos now = parts_.clock.monotonic();
    const AdapterPtr adapter = adapter_for_locked(backend, checkpoint);
    if (!samplers_.emplace(record.id, Sampler{record.user, record.session, adapter, now}).second) return;
    samplers_by_user_[record.user].insert(record.id);
    ++adapter->users;
    adapter->last_used = now;
  }
  backend->instruments().add_sampler(1);
}

std::vector<SamplingController::Idle> SamplingController::idle_samplers(const UserId& user) const {
  std::vector<Idle> idle;
  {
    MutexLock lock(mutex_);
    for (const SamplerId& id : samplers_of_locked(user)) {
      const Sampler& sampler = samplers_.at(id);
      const Adapter& adapter = *sampler.adapter;
      if (adapter.running > 0 || !adapter.waiting.empty()) continue;
      const bool unnamed = adapter.checkpoint != nullptr && adapter.checkpoint->ephemeral;
      idle.push_back({id, sampler.session, sampler.last_used, unnamed});
    }
  }
  std::sort(idle.begin(), idle.end(), [](const Idle& a, const Idle& b) { return a.last_used < b.last_used; });
  return idle;
}

// At the limit: ends the user's longest unused session that is silent and has samplers, else drops a sampler.
bool SamplingController::make_room(const UserId& user) {
  for (const Idle& sampler : idle_samplers(user)) {
    if (parts_.sessions.end_idle(sampler.session)) return true;
  }
  return drop_unnamed(user, quota_limit(Quota::kSamplers));
}

bool SamplingController::drop_unnamed(const UserId& user, std::string_view limit) {
  for (const Idle& sampler : idle_samplers(user)) {
    if (!sampler.unnamed) continue;
    gone_.note(sampler.id, user,
               "an unnamed save made it, and as the longest unused it made room for a newer one (" +
                   std::string(limit) + "). Save under a name what shall stay");
    remove(sampler.id);
    return true;
  }
  return false;
}

void SamplingController::remove(const SamplerId& id) {
  AdapterPtr adapter;
  bool last = false;
  {
    MutexLock lock(mutex_);
    const auto found = samplers_.find(id);
    if (found == samplers_.end()) return;
    adapter = found->second.adapter;
    const auto own = samplers_by_user_.find(found->second.user);
    own->second.erase(id);
    if (own->second.empty()) samplers_by_user_.erase(own);
    samplers_.erase(found);
    last = --adapter->users == 0 && adapter->checkpoint != nullptr;
    if (last) adapters_.erase(adapter->key);
    if (parts_.persistence.enabled()) {
      parts_.persistence.write({parts_.persistence.erase(id)}, telemetry::current_context());
    }
  }
  adapter->backend->instruments().add_sampler(-1);
  if (last) release(adapter);
}

// Nobody can find the adapter any more: its place in the worker and its files go.
void SamplingController::release(const AdapterPtr& adapter) {
  std::string worker_id;
  std::deque<OperationPtr> left;
  {
    MutexLock lock(mutex_);
    if (is_loaded(*adapter)) worker_id = adapter->worker_id;
    adapter->loaded_generation = 0;
    adapter->released = true;
    left.swap(adapter->waiting);
  }
  for (const OperationPtr& operation : left) fail(operation, sampler_gone());
  if (!worker_id.empty()) unload(adapter, worker_id);
  if (adapter->checkpoint->ephemeral) parts_.checkpoints.forget(adapter->checkpoint->path);
}

void SamplingController::close_session(const UserId& user, const SessionId& session) {
  for (const SamplerId& id : samplers_of(user, session)) remove(id);
}

Error SamplingController::unknown_sampler(const UserId& user, const SamplerId& sampler) const {
  const SessionId session(sampler.str().substr(0, sampler.str().find(":sample:")));
  if (const std::string why = gone_.why(sampler, user); !why.empty()) {
    return not_found("this sampling session is not there any more: " + why, "sampler_gone");
  }
  const std::string ending = parts_.sessions.ending_of(user, session);
  if (ending.empty()) {
    return not_found("unknown sampling_session_id: it does not exist or was given up", "sampler_not_found");
  }
  return not_found("this sampling session is not there any more; " + ending, "session_ended");
}

Result<SamplerInfo> SamplingController::get_sampler(const UserId& user, const SamplerId& id) const {
  AdapterPtr adapter;
  {
    MutexLock lock(mutex_);
    const auto found = samplers_.find(id);
    if (found != samplers_.end() && found->second.user == user) adapter = found->second.adapter;
  }
  if (adapter == nullptr) return unknown_sampler(user, id);
  SamplerInfo info{id, adapter->backend->name(), std::nullopt, 0};
  if (adapter->checkpoint != nullptr) {
    info.model_path = adapter->checkpoint->path.str();
    info.lora_rank = adapter->checkpoint->lora_rank;
  }
  return info;
}

std::vector<SamplerId> SamplingController::samplers_of_locked(const UserId& user) const {
  const auto own = samplers_by_user_.find(user);
  if (own == samplers_by_user_.end()) return {};
  return {own->second.begin(), own->second.end()};
}

std::vector<SamplerId> SamplingController::samplers_of(const UserId& user, const SessionId& session) const {
  std::vector<SamplerId> ids;
  MutexLock lock(mutex_);
  for (const SamplerId& id : samplers_of_locked(user)) {
    if (samplers_.at(id).session == session) ids.push_back(id);
  }
  return ids;
}

Result<Submitted> SamplingController::sample(const UserId& user, const Sample& request,
                                             const telemetry::SpanContext& trace) {
  auto operation = std::make_shared<Operation>();
  operation->user = user;
  operation->placed = parts_.clock.monotonic();
  AdapterPtr adapter;
  SessionId session;
  {
    MutexLock lock(mutex_);
    const auto found = samplers_.find(request.sampler);
    if (found != samplers_.end() && found->second.user == user) {
      found->second.last_used = operation->placed;
      session = found->second.session;
      adapter = found->second.adapter;
    }
  }
  if (adapter == nullptr) return unknown_sampler(user, request.sampler);
  parts_.sessions.note_alive(session);
  operation->backend = adapter->backend;
  operation->num_samples = request.num_samples;
  OperationKeys keys;
  keys.operation = OperationType::kSample;
  keys.session = session;
  keys.sampler = request.sampler;
  keys.base_model = adapter->backend->name();
  keys.lora_rank = adapter->checkpoint == nullptr ? 0 : adapter->checkpoint->lora_rank;
  keys.seq_id = request.seq_id;
  TUFT_ASSIGN(operation->request, make_sample_request(adapter->backend->config(), request));
  operation->request.set_cache_scope(user.str());
  operation->cost = sample_cost(adapter->backend->config(), operation->request);
  std::string key = request.seq_id ? request.sampler.str() + '#' + std::to_string(*request.seq_id) : std::string();
  const auto payload_bytes = static_cast<int64_t>(operation->request.SpaceUsedLong());
  TUFT_ASSIGN(auto admission,
              parts_.futures.admit(user, std::move(keys), std::move(key), trace, {.payload_bytes = payload_bytes}));
  Submitted answer{admission.future->request, std::nullopt,
                   OperationKeysPtr(admission.future, &admission.future->keys)};
  if (!admission.is_new) return answer;
  operation->future = std::move(admission.future);
  operation->memory = std::move(admission.memory);
  operation->keys = answer.keys;
  operation->span = sampling_controller_tracer().start_span(
      "sampling_controller.run_sample",
      {.attributes = KeyAttributes(*operation->keys, {{"tuft.num_samples", request.num_samples}}),
       .parent = operation->future->context});
  adapter->backend->instruments().record_sample_request(operation->request);
  parts_.futures.on_cancel(*operation->future, [weak_self = weak_from_this(), weak = std::weak_ptr(operation)] {
    const auto self = weak_self.lock();
    const OperationPtr waiting = weak.lock();
    if (self != nullptr && waiting != nullptr) self->let_go(*waiting, false);
  });
  dispatch(adapter, operation);
  return answer;
}

// One that was cancelled may wait for its turn for long, without a request. What a worker has ends with its answer.
void SamplingController::let_go(Operation& operation, bool has_ended) {
  worker::v1::SampleRequest request;  // destroyed without the lock
  MutexLock lock(mutex_);
  if (operation.has_turn && !has_ended) return;
  operation.dropped = true;
  request.Swap(&operation.request);
  operation.memory.shrink_to(FutureStore::kOperationBytes);
}

void SamplingController::fail(const OperationPtr& operation, const Error& error) {
  record_failure(*operation, error);
  operation->span.record_error(error);
  operation->span.end();
  complete(operation, error);
}

void SamplingController::complete(const OperationPtr& operation, Result<worker::v1::SampleResponse> result) {
  // First, so that who sees it end finds the memory free.
  let_go(*operation, true);
  if (operation->stream != nullptr) return end_stream(*operation, std::move(result));
  if (!result.ok()) return parts_.futures.complete(operation->future, std::move(result).error());
  parts_.futures.complete(operation->future, FutureValue(ProtobufResult{result->response().SerializeAsString()}));
}

}  // namespace tuft::control
