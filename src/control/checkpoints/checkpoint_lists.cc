#include "control/checkpoints/checkpoint_lists.h"

#include <algorithm>
#include <tuple>

namespace tuft::control {
namespace {

size_t index_of(CheckpointKind kind) {
  return static_cast<size_t>(kind);
}

CheckpointPtr last_of(const auto& set) {
  return set.empty() ? nullptr : *set.rbegin();
}

bool is_loadable(const Checkpoint& checkpoint) {
  return checkpoint.path.kind != CheckpointKind::kExternal;
}

}  // namespace

// created_at always has the same form, so it can be compared as text.
bool CheckpointLists::Older::operator()(const CheckpointPtr& a, const CheckpointPtr& b) const {
  return std::tie(a->created_at, a->future_number, a->path.name, a->path.run, a->path.kind) <
         std::tie(b->created_at, b->future_number, b->path.name, b->path.run, b->path.kind);
}

bool CheckpointLists::ByNumber::operator()(const CheckpointPtr& a, const CheckpointPtr& b) const {
  return std::tie(a->future_number, a->created_at, a->path.name) <
         std::tie(b->future_number, b->created_at, b->path.name);
}

void CheckpointLists::put(const CheckpointPtr& checkpoint) {
  MutexLock lock(mutex_);
  CheckpointPtr& entry = by_path_[checkpoint->path.str()];
  if (entry != nullptr) unlist(entry);
  entry = checkpoint;
  list(checkpoint);
}

bool CheckpointLists::take(const std::string& path, const CheckpointFiles* files) {
  MutexLock lock(mutex_);
  const auto found = by_path_.find(path);
  if (found == by_path_.end() || found->second->files.get() != files) return false;
  unlist(found->second);
  by_path_.erase(found);
  return true;
}

void CheckpointLists::list(const CheckpointPtr& checkpoint) {
  if (checkpoint->expires_at) expiring_.emplace(*checkpoint->expires_at, checkpoint->path.str());
  if (checkpoint->ephemeral) return;
  const size_t kind = index_of(checkpoint->path.kind);
  RunLists& run = runs_[checkpoint->path.run];
  OwnerLists& owner = owners_[checkpoint->owner];
  run.owner = checkpoint->owner;
  owner.runs.erase({last_saved(run.of_kind), checkpoint->path.run});
  run.all.insert(checkpoint);
  if (is_loadable(*checkpoint)) run.loadable.insert(checkpoint);
  run.bytes += checkpoint->size_bytes;
  run.of_kind[kind].insert(checkpoint);
  if (checkpoint->is_public) run.is_public[kind].insert(checkpoint);
  owner.all.insert(checkpoint);
  if (is_loadable(*checkpoint)) owner.loadable.insert(checkpoint);
  if (checkpoint->path.kind == CheckpointKind::kSampler) owner.samplers.insert(checkpoint);
  owner.runs.emplace(last_saved(run.of_kind), checkpoint->path.run);
}

void CheckpointLists::unlist(const CheckpointPtr& checkpoint) {
  if (checkpoint->expires_at) expiring_.erase({*checkpoint->expires_at, checkpoint->path.str()});
  if (checkpoint->ephemeral) return;
  const size_t kind = index_of(checkpoint->path.kind);
  const auto run = runs_.find(checkpoint->path.run);
  const auto owner = owners_.find(checkpoint->owner);
  owner->second.runs.erase({last_saved(run->second.of_kind), run->first});
  owner->second.all.erase(checkpoint);
  owner->second.loadable.erase(checkpoint);
  owner->second.samplers.erase(checkpoint);
  run->second.all.erase(checkpoint);
  run->second.loadable.erase(checkpoint);
  run->second.bytes -= checkpoint->size_bytes;
  run->second.of_kind[kind].erase(checkpoint);
  run->second.is_public[kind].erase(checkpoint);
  if (run->second.all.empty()) {
    runs_.erase(run);
  } else {
    owner->second.runs.emplace(last_saved(run->second.of_kind), run->first);
  }
  if (owner->second.all.empty()) owners_.erase(owner);
}

CheckpointPtr CheckpointLists::find(const std::string& path) const {
  MutexLock lock(mutex_);
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? nullptr : found->second;
}

CheckpointPtr CheckpointLists::newest_training(const RunId& run) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? nullptr : last_of(found->second.of_kind[index_of(CheckpointKind::kTraining)]);
}

CheckpointPtr CheckpointLists::saved_by(const RunId& run, uint64_t future_number) const {
  const auto before_it = std::make_shared<Checkpoint>();
  before_it->future_number = future_number;
  MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return nullptr;
  for (const auto& kind : found->second.of_kind) {
    const auto next = kind.lower_bound(before_it);
    if (next != kind.end() && (*next)->future_number == future_number) return *next;
  }
  return nullptr;
}

std::vector<CheckpointPtr> CheckpointLists::expired(Nanos wall, const CheckpointPtr& after, size_t count_max) const {
  std::vector<CheckpointPtr> found;
  MutexLock lock(mutex_);
  auto next = after == nullptr ? expiring_.begin() : expiring_.upper_bound({*after->expires_at, after->path.str()});
  for (; next != expiring_.end() && next->first <= wall && found.size() < count_max; ++next) {
    found.push_back(by_path_.at(next->second));
  }
  return found;
}

std::string CheckpointLists::last_saved(const Kinds& kinds) {
  std::string last;
  for (const auto& kind : kinds) {
    if (!kind.empty()) last = std::max(last, (*kind.rbegin())->created_at);
  }
  return last;
}

std::optional<RunHead> CheckpointLists::head_of(const RunId& run, const UserId& owner, const Kinds& kinds) {
  RunHead head{run,
               owner,
               last_saved(kinds),
               last_of(kinds[index_of(CheckpointKind::kTraining)]),
               last_of(kinds[index_of(CheckpointKind::kSampler)]),
               last_of(kinds[index_of(CheckpointKind::kExternal)])};
  if (head.training == nullptr && head.sampler == nullptr && head.external == nullptr) return std::nullopt;
  return head;
}

std::optional<RunHead> CheckpointLists::head(const RunId& run) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? std::nullopt : head_of(run, found->second.owner, found->second.of_kind);
}

std::optional<RunHead> CheckpointLists::public_head(const RunId& run) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? std::nullopt : head_of(run, found->second.owner, found->second.is_public);
}

Page<CheckpointPtr> CheckpointLists::of_run(const RunId& run, const PageRequest& page, Listed listed) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return {{}, page.offset, page.limit, 0};
  const auto& lists = found->second;
  return page_of(listed == Listed::kAll ? lists.all : lists.loadable, page);
}

Page<CheckpointPtr> CheckpointLists::of_owner(const UserId& owner, const PageRequest& page, Listed listed) const {
  MutexLock lock(mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return {{}, page.offset, page.limit, 0};
  const auto& lists = found->second;
  return page_of(listed == Listed::kAll ? lists.all : lists.loadable, page);
}

std::vector<CheckpointPtr> CheckpointLists::samplers_after(const UserId& owner, const CheckpointPtr& after,
                                                           size_t count_max) const {
  std::vector<CheckpointPtr> found;
  MutexLock lock(mutex_);
  const auto lists = owners_.find(owner);
  if (lists == owners_.end()) return found;
  const auto& all = lists->second.samplers;
  auto next = after == nullptr ? all.begin() : all.upper_bound(after);
  for (; next != all.end() && found.size() < count_max; ++next) found.push_back(*next);
  return found;
}

std::vector<RunHead> CheckpointLists::runs_after(const UserId& owner, const RunCursor& after, size_t count_max) const {
  std::vector<RunHead> heads;
  MutexLock lock(mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return heads;
  const auto& runs = found->second.runs;
  auto next = after ? runs.upper_bound(*after) : runs.begin();
  for (; next != runs.end() && heads.size() < count_max; ++next) {
    if (auto one = head_of(next->second, owner, runs_.at(next->second).of_kind)) heads.push_back(std::move(*one));
  }
  return heads;
}

int64_t CheckpointLists::count_runs(const UserId& owner) const {
  MutexLock lock(mutex_);
  const auto found = owners_.find(owner);
  return found == owners_.end() ? 0 : static_cast<int64_t>(found->second.runs.size());
}

template <typename Visit>
void CheckpointLists::visit_runs_locked(const UserId& owner, const SessionId& session, Visit visit) const {
  const std::string prefix = session.str() + ":train:";
  for (auto run = runs_.lower_bound(RunId(prefix)); run != runs_.end() && run->first.str().starts_with(prefix); ++run) {
    if (run->second.owner == owner) visit(run->first, run->second);
  }
}

std::vector<RunHead> CheckpointLists::runs_of_session(const UserId& owner, const SessionId& session) const {
  std::vector<RunHead> heads;
  MutexLock lock(mutex_);
  visit_runs_locked(owner, session, [&](const RunId& id, const RunLists& run) {
    if (auto one = head_of(id, owner, run.of_kind)) heads.push_back(std::move(*one));
  });
  return heads;
}

SessionStorage CheckpointLists::storage_of_session(const UserId& owner, const SessionId& session) const {
  SessionStorage storage;
  MutexLock lock(mutex_);
  visit_runs_locked(owner, session, [&](const RunId&, const RunLists& run) {
    storage.checkpoints += static_cast<int64_t>(run.all.size());
    storage.bytes += run.bytes;
  });
  return storage;
}

}  // namespace tuft::control
