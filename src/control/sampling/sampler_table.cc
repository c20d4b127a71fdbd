#include "control/sampling/sampler_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "control/accounts/quota.h"
#include "control/sampling/sampling_telemetry.h"
#include "control/types/operation_keys.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

CheckpointRef ref_of(const Checkpoint& checkpoint) {
  return {checkpoint.path.str(), checkpoint.future_number};
}

// Requires: `checkpoint` is what it samples from; null: the base model.
bool is_unnamed_snapshot(const SamplerRecord& record, const CheckpointPtr& checkpoint) {
  return checkpoint != nullptr && checkpoint->ephemeral && !record.inflight;
}

std::string key_of_followers(const FrozenAdapter& adapter) {
  return follow_key(adapter.checkpoint->path.run, adapter.model->name());
}

}  // namespace

Result<SamplerId> SamplerTable::create(const UserId& user, const NewSampler& request, const ModelPtr& model,
                                       const CheckpointPtr& checkpoint, const telemetry::SpanContext& trace) {
  const SessionId& session = request.session;
  SamplerRecord record{.id = SamplerId(session.str() + ":sample:" + std::to_string(request.seq_id)),
                       .user = user,
                       .session = session,
                       .base_model = model->name(),
                       .seq_id = request.seq_id,
                       .checkpoint = {},
                       .created_at = iso_time(clock_.wall()),
                       .inflight = request.inflight};
  if (checkpoint != nullptr) record.checkpoint = ref_of(*checkpoint);
  OperationKeys keys;
  keys.user = user;
  keys.session = session;
  keys.sampler = record.id;
  keys.base_model = model->name();
  keys.lora_rank = checkpoint == nullptr ? 0 : checkpoint->lora_rank;
  telemetry::Span span = sampling_controller_tracer().start_span("sampling_controller.create_sampling_session",
                                                                 {.attributes = KeyAttributes(keys), .parent = trace});
  span.share(KeyAttributes(keys));
  const auto refuse = [&span](Error error) {
    span.record_error(error);
    return error;
  };
  if (!model->config().sampling) return refuse(sampling_disabled(model->name()));
  Inserted inserted;
  Result<Insertion> insertion = insert(record, model, checkpoint, span.context(), inserted);
  // Another request may take the room that this one made.
  while (insertion.ok() && *insertion == Insertion::kFull && make_room(user)) {
    insertion = insert(record, model, checkpoint, span.context(), inserted);
  }
  if (!insertion.ok()) return refuse(insertion.error());
  if (*insertion == Insertion::kKnown) return record.id;
  if (*insertion == Insertion::kFull) {
    return refuse(over_quota(Quota::kSamplers, "you have " + std::to_string(count_max_) + " sampling sessions",
                             "end some clients (those of a session that was silent for a minute make room by "
                             "themselves)"));
  }
  model->facts().instruments().add_sampler(1);
  const telemetry::ContextScope scope(span.context());
  telemetry::log_info("sampling_session.created", "sampling session created",
                      KeyAttributes(keys, {{"tuft.has_lora", checkpoint != nullptr}}));
  if (checkpoint != nullptr && !checkpoint->ephemeral) {
    usage_.audit({.action = AuditAction::kCheckpointLoaded,
                  .user = user,
                  .owner = checkpoint->owner,
                  .session = session,
                  .run = checkpoint->path.run,
                  .tinker_path = checkpoint->path.str(),
                  .purpose = "sampling"});
  }
  adapters_->load(inserted.adapter, keys, span.context());
  if (checkpoint != nullptr && checkpoint->ephemeral) trim_unnamed(user, checkpoint->path.run, record.id);
  if (inserted.older != nullptr) {
    adapters_->supersede(inserted.older, inserted.adapter);
    adapters_->release(inserted.older);
  }
  // The session may have begun to end before it saw the sampling session.
  if (!sessions_.belongs_to(user, session)) {
    remove(record.id);
    return refuse(unknown(user, record.id));
  }
  return record.id;
}

Result<SamplerTable::Insertion> SamplerTable::insert(const SamplerRecord& record, const ModelPtr& model,
                                                     const CheckpointPtr& checkpoint,
                                                     const telemetry::SpanContext& trace, Inserted& inserted) {
  MutexLock lock(mutex_);
  if (const auto found = samplers_.find(record.id); found != samplers_.end()) {
    if (found->second.weights->adapter->key == frozen_adapter_key(model->name(), checkpoint)) return Insertion::kKnown;
    return invalid_argument("this sampling_session_seq_id was used for another model of this session",
                            "repeated_key_mismatch");
  }
  const auto own = by_user_.find(record.user);
  if ((own == by_user_.end() ? 0 : own->second.size()) >= count_max_) return Insertion::kFull;
  inserted = add_locked(record, model, checkpoint);
  // Written under the lock, so that the answer to a repetition waits for this write, too.
  if (persistence_.enabled()) persistence_.write(record.user, {persistence_.put(record)}, trace);
  return Insertion::kInserted;
}

void SamplerTable::restore(const SamplerRecord& record, const ModelPtr& model, const CheckpointPtr& checkpoint) {
  {
    MutexLock lock(mutex_);
    if (samplers_.contains(record.id)) return;
    const Inserted inserted = add_locked(record, model, checkpoint);
    TUFT_CHECK(inserted.older == nullptr, "the records of a run's followers name one checkpoint");
  }
  if (!persistence_.is_view()) model->facts().instruments().add_sampler(1);
}

SamplerTable::Inserted SamplerTable::add_locked(const SamplerRecord& record, const ModelPtr& model,
                                                const CheckpointPtr& checkpoint) {
  FrozenAdapterPtr older;
  WeightsPtr weights;
  if (record.inflight) {
    weights = follow_locked(record, model, checkpoint, older);
  } else {
    weights =
        std::make_shared<Weights>(adapters_->acquire(model, checkpoint), hold_checkpoint(checkpoint, record.user));
  }
  by_user_[record.user].insert(record.id);
  if (is_unnamed_snapshot(record, checkpoint)) unnamed_[checkpoint->path.run].insert(record.id);
  const FrozenAdapterPtr adapter = weights->adapter;
  samplers_.emplace(record.id, Sampler{record, std::move(weights), clock_.monotonic(), ++turns_});
  return {adapter, std::move(older)};
}

SamplerTable::WeightsPtr SamplerTable::follow_locked(const SamplerRecord& record, const ModelPtr& model,
                                                     const CheckpointPtr& checkpoint, FrozenAdapterPtr& older) {
  Followers& followers = followers_[follow_key(checkpoint->path.run, model->name())];
  ++followers.count;
  followers.newest = record.id;
  if (followers.weights == nullptr) followers.weights = std::make_shared<Weights>();
  Weights& weights = *followers.weights;
  if (weights.adapter == nullptr || weights.adapter->key != frozen_adapter_key(model->name(), checkpoint)) {
    older = std::exchange(weights.adapter, adapters_->acquire(model, checkpoint));
    weights.hold = hold_checkpoint(checkpoint, record.user);
  }
  return followers.weights;
}

SamplerTable::Entry SamplerTable::entry_locked(const SamplerId& id) const {
  const Sampler& sampler = samplers_.at(id);
  Entry entry{id, sampler.record.session, sampler.weights->adapter, sampler.turn};
  if (sampler.record.inflight) {
    const Followers& followers = followers_.at(key_of_followers(*entry.adapter));
    entry.names_for_others = followers.newest == id && followers.count > 1;
  }
  return entry;
}

std::vector<SamplerTable::Entry> SamplerTable::of_user(const UserId& user) const {
  std::vector<Entry> own;
  MutexLock lock(mutex_);
  const auto found = by_user_.find(user);
  if (found == by_user_.end()) return own;
  own.reserve(found->second.size());
  for (const SamplerId& id : found->second) own.push_back(entry_locked(id));
  return own;
}

std::vector<SamplerTable::Entry> SamplerTable::idle(std::vector<Entry> entries) const {
  std::erase_if(entries, [this](const Entry& entry) { return adapters_->is_busy(*entry.adapter); });
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.turn < b.turn; });
  return entries;
}

bool SamplerTable::make_room(const UserId& user) {
  for (const Entry& entry : idle(of_user(user))) {
    if (sessions_.end_idle(entry.session)) return true;
  }
  return drop_unnamed(user, quota_limit(Quota::kSamplers));
}

bool SamplerTable::drop_unnamed(const UserId& user, std::string_view limit) {
  for (const Entry& entry : idle(of_user(user))) {
    const CheckpointPtr& checkpoint = entry.adapter->checkpoint;
    if (checkpoint == nullptr || !checkpoint->ephemeral || entry.names_for_others) continue;
    drop(entry, user, limit);
    return true;
  }
  return false;
}

void SamplerTable::trim_unnamed(const UserId& user, const RunId& run, const SamplerId& newest) {
  std::vector<Entry> unnamed;
  {
    MutexLock lock(mutex_);
    const auto found = unnamed_.find(run);
    if (found == unnamed_.end()) return;
    for (const SamplerId& id : found->second) unnamed.push_back(entry_locked(id));
  }
  size_t count = unnamed.size();
  for (const Entry& entry : idle(std::move(unnamed))) {
    if (count <= unnamed_max_) return;
    if (entry.id == newest) continue;
    drop(entry, user, "limits.unnamed_samplers_per_run_max");
    --count;
  }
}

void SamplerTable::drop(const Entry& entry, const UserId& user, std::string_view limit) {
  gone_.note(entry.id, user,
             "an unnamed save made it, and as the longest unused it made room for a newer one (" + std::string(limit) +
                 "). Save under a name to keep a sampling session");
  remove(entry.id);
  telemetry::log_info(
      "sampling_session.dropped", "a sampling session of an unnamed save made room for a newer one",
      {{"tuft.session_id", entry.session.str()}, {"tuft.sampling_session_id", entry.id.str()}, {"tuft.limit", limit}});
}

void SamplerTable::remove(const SamplerId& id) {
  FrozenAdapterPtr adapter;
  bool unused = false;
  {
    MutexLock lock(mutex_);
    const auto found = samplers_.find(id);
    if (found == samplers_.end()) return;
    adapter = found->second.weights->adapter;
    unused = leave_locked(found->second);
    forget_unnamed_locked(found->second);
    const auto own = by_user_.find(found->second.record.user);
    own->second.erase(id);
    if (own->second.empty()) by_user_.erase(own);
    samplers_.erase(found);
    if (persistence_.enabled()) {
      persistence_.write({}, {persistence_.erase(id)},
                         telemetry::share(telemetry::current_context(), {{"tuft.sampling_session_id", id.str()}}));
    }
  }
  adapter->model->facts().instruments().add_sampler(-1);
  if (unused) adapters_->release(adapter);
}

void SamplerTable::forget_unnamed_locked(const Sampler& sampler) {
  const CheckpointPtr& checkpoint = sampler.weights->adapter->checkpoint;
  if (!is_unnamed_snapshot(sampler.record, checkpoint)) return;
  const auto unnamed = unnamed_.find(checkpoint->path.run);
  unnamed->second.erase(sampler.record.id);
  if (unnamed->second.empty()) unnamed_.erase(unnamed);
}

// The sampling session is being removed. Returns true if nobody else uses its weights.
bool SamplerTable::leave_locked(const Sampler& sampler) {
  if (!sampler.record.inflight) return true;
  const auto followers = followers_.find(key_of_followers(*sampler.weights->adapter));
  if (--followers->second.count > 0) return false;
  followers_.erase(followers);
  return true;
}

void SamplerTable::close_session(const UserId& user, const SessionId& session) {
  for (const SamplerId& id : of_session(user, session)) remove(id);
}

Error SamplerTable::unknown(const UserId& user, const SamplerId& sampler) const {
  const SessionId session(sampler.str().substr(0, sampler.str().find(":sample:")));
  if (const std::string why = gone_.why(sampler, user); !why.empty()) {
    return not_found("this sampling session no longer exists: " + why, "sampler_gone");
  }
  const std::string ending = sessions_.ending_of(user, session);
  if (ending.empty()) {
    return not_found("unknown sampling_session_id: it does not exist or was dropped", "sampler_not_found");
  }
  return not_found("this sampling session no longer exists; " + ending, "session_ended");
}

Result<SamplerTable::Used> SamplerTable::use(const UserId& user, const SamplerId& id) {
  {
    MutexLock lock(mutex_);
    const auto found = samplers_.find(id);
    if (found != samplers_.end() && found->second.record.user == user) {
      const FrozenAdapterPtr& adapter = found->second.weights->adapter;
      if (!adapter->model->config().sampling) return sampling_disabled(adapter->model->name());
      found->second.last_used = clock_.monotonic();
      found->second.turn = ++turns_;
      ++found->second.uses;
      return Used{adapter, found->second.record.session, found->second.home};
    }
  }
  return unknown(user, id);
}

Result<SamplerInfo> SamplerTable::info(const UserId& user, const SamplerId& id) const {
  {
    MutexLock lock(mutex_);
    const auto found = samplers_.find(id);
    if (found != samplers_.end() && found->second.record.user == user) {
      const FrozenAdapter& adapter = *found->second.weights->adapter;
      SamplerInfo info{id, adapter.model->name(), std::nullopt, adapter.lora_rank()};
      if (adapter.checkpoint != nullptr) info.model_path = adapter.checkpoint->path.str();
      return info;
    }
  }
  return unknown(user, id);
}

Result<SessionId> SamplerTable::session_of(const UserId& user, const SamplerId& id) const {
  {
    MutexLock lock(mutex_);
    const auto found = samplers_.find(id);
    if (found != samplers_.end() && found->second.record.user == user) return found->second.record.session;
  }
  return unknown(user, id);
}

std::vector<SamplerTable::Summary> SamplerTable::summaries_of(const UserId& user) const {
  std::vector<Summary> summaries;
  MutexLock lock(mutex_);
  const auto own = by_user_.find(user);
  if (own == by_user_.end()) return summaries;
  for (const SamplerId& id : own->second) {
    const Sampler& sampler = samplers_.at(id);
    const FrozenAdapter& adapter = *sampler.weights->adapter;
    Summary summary{.id = id,
                    .session = sampler.record.session,
                    .base_model = adapter.model->name(),
                    .model_path = {},
                    .created_at = sampler.record.created_at,
                    .last_used = sampler.last_used,
                    .uses = sampler.uses,
                    .follows = {}};
    if (adapter.checkpoint != nullptr) summary.model_path = adapter.checkpoint->path.str();
    if (adapter.checkpoint != nullptr && sampler.record.inflight) summary.follows = adapter.checkpoint->path.run;
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

int64_t SamplerTable::count_of(const UserId& user) const {
  MutexLock lock(mutex_);
  const auto own = by_user_.find(user);
  return own == by_user_.end() ? 0 : static_cast<int64_t>(own->second.size());
}

std::vector<SamplerId> SamplerTable::of_session(const UserId& user, const SessionId& session) const {
  std::vector<SamplerId> ids;
  MutexLock lock(mutex_);
  const auto own = by_user_.find(user);
  if (own == by_user_.end()) return ids;
  for (const SamplerId& id : own->second) {
    if (samplers_.at(id).record.session == session) ids.push_back(id);
  }
  return ids;
}

}  // namespace tuft::control
