#include "control/training/run_table.h"

#include <string>
#include <utility>

#include "control/accounts/quota.h"

namespace tuft::control {

Result<RunPtr> RunTable::add(const RunPtr& run) {
  for (bool reclaimed = false;; reclaimed = true) {
    {
      MutexLock lock(mutex_);
      if (const auto found = runs_.find(run->id); found != runs_.end()) {
        ++creations_.try_emplace(found->second, Creation{0, true}).first->second.requests;
        return found->second;
      }
      const auto tenant = tenants_.find(run->user);
      if ((tenant == tenants_.end() ? 0 : tenant->second.counted) < runs_per_user_max_) {
        insert_locked(run);
        creations_.emplace(run, Creation{1, false});
        return run;
      }
    }
    if (reclaimed || !end_idle_session(run->user)) break;
  }
  return over_quota(Quota::kRuns, "you have " + std::to_string(runs_per_user_max_) + " training runs",
                    "end some clients (runs of a session that was silent for a minute make room by themselves)");
}

bool RunTable::end_creation(const RunPtr& run, bool is_admitted) {
  MutexLock lock(mutex_);
  const auto found = creations_.find(run);
  Creation& creation = found->second;
  if (is_admitted) creation.is_admitted = true;
  if (--creation.requests > 0) return false;
  const bool stays = creation.is_admitted;
  creations_.erase(found);
  if (!stays) erase_locked(*run);
  return !stays;
}

bool RunTable::restore(const RunPtr& run) {
  MutexLock lock(mutex_);
  return insert_locked(run);
}

void RunTable::uncount(const Run& run) {
  MutexLock lock(mutex_);
  uncount_locked(run.user, 1);
}

void RunTable::remove(const RunPtr& run, bool counted) {
  MutexLock lock(mutex_);
  erase_locked(*run);
  tenants_[run->user].runs.erase(run);
  uncount_locked(run->user, counted ? 1 : 0);
}

bool RunTable::insert_locked(const RunPtr& run) {
  if (!runs_.emplace(run->id, run).second) return false;
  Tenant& tenant = tenants_[run->user];
  tenant.runs.insert(run);
  ++tenant.counted;
  return true;
}

// Its id may belong to another run by now.
void RunTable::erase_locked(const Run& run) {
  const auto found = runs_.find(run.id);
  if (found != runs_.end() && found->second.get() == &run) runs_.erase(found);
}

void RunTable::uncount_locked(const UserId& user, int count) {
  const auto tenant = tenants_.find(user);
  tenant->second.counted -= count;
  if (tenant->second.counted == 0 && tenant->second.runs.empty()) tenants_.erase(tenant);
}

bool RunTable::end_idle_session(const UserId& user) {
  for (const RunPtr& run : of_user(user)) {
    if (!sessions_.is_idle(run->session)) continue;
    {
      MutexLock lock(run->mutex);
      if (run->ending || run->running != nullptr || !run->log.empty()) continue;
    }
    if (sessions_.end_idle(run->session)) return true;
  }
  return false;
}

RunPtr RunTable::find_any(const UserId& user, const RunId& run) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  return found != runs_.end() && found->second->user == user ? found->second : nullptr;
}

Result<RunPtr> RunTable::find(const UserId& user, const RunId& run) const {
  RunPtr found = find_any(user, run);
  bool is_there = found != nullptr;
  if (is_there) {
    MutexLock lock(found->mutex);
    is_there = !found->ending;
  }
  if (!is_there) return unknown(user, run);
  return found;
}

bool RunTable::has_left_checkpoints(const RunId& run) const {
  return of_any_user(run) == nullptr && checkpoints_.lists().head(run).has_value();
}

Error RunTable::unknown(const UserId& user, const RunId& run) const {
  const CheckpointPtr newest = checkpoints_.lists().newest_training(run);
  const bool is_own = newest != nullptr && newest->owner == user;
  const SessionId session(run.str().substr(0, run.str().find(":train:")));
  const std::string ending = sessions_.ending_of(user, session);
  if (!is_own && ending.empty()) {
    return not_found("unknown model_id: it does not exist or was unloaded", "model_not_found");
  }
  const std::string cause = ending.empty() ? "it was unloaded" : ending;
  if (!is_own) return not_found("this model does not exist any more; " + cause, "session_ended");
  return not_found("this model does not exist any more; " + cause + ". Its newest checkpoint is " + newest->path.str() +
                       ": make a new model from it",
                   ending.empty() ? "model_not_found" : "session_ended");
}

Result<ModelInfo> RunTable::get_info(const UserId& user, const RunId& run) const {
  TUFT_ASSIGN(const RunPtr found, find(user, run));
  return info_of(*found);
}

RunPtr RunTable::of_any_user(const RunId& run) const {
  MutexLock lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? nullptr : found->second;
}

bool RunTable::restores_from(const Checkpoint& checkpoint) const {
  const RunPtr run = of_any_user(checkpoint.path.run);
  if (run == nullptr) return false;
  MutexLock lock(run->mutex);
  const CheckpointPtr point = run->restore_point ? run->restore_point->checkpoint : nullptr;
  return point != nullptr && point->path == checkpoint.path && point->future_number == checkpoint.future_number;
}

void RunTable::attend_locked(const RunPtr& run) {
  if (run->attended) return;
  run->attended = true;
  MutexLock lock(mutex_);
  attended_.push_back(run);
}

std::vector<RunPtr> RunTable::take_attended() {
  MutexLock lock(mutex_);
  return std::exchange(attended_, {});
}

void RunTable::still_attend(const RunPtr& run) {
  MutexLock of_run(run->mutex);
  run->attended = false;
  if (!run->is_at_rest_locked()) attend_locked(run);
}

std::vector<RunPtr> RunTable::all() const {
  std::vector<RunPtr> runs;
  MutexLock lock(mutex_);
  runs.reserve(runs_.size());
  for (const auto& entry : runs_) runs.push_back(entry.second);
  return runs;
}

std::vector<RunPtr> RunTable::of_user(const UserId& user) const {
  MutexLock lock(mutex_);
  const auto tenant = tenants_.find(user);
  if (tenant == tenants_.end()) return {};
  return {tenant->second.runs.begin(), tenant->second.runs.end()};
}

std::vector<RunPtr> RunTable::of_session(const UserId& user, const SessionId& session) const {
  std::vector<RunPtr> runs = of_user(user);
  std::erase_if(runs, [&session](const RunPtr& run) { return run->session != session; });
  return runs;
}

std::vector<RunSummary> RunTable::runs_of(const UserId& user) const {
  std::vector<RunSummary> summaries;
  for (const RunPtr& run : of_user(user)) summaries.push_back(summary_of(*run));
  return summaries;
}

std::optional<RunSummary> RunTable::run_of(const UserId& user, const RunId& run) const {
  const RunPtr found = find_any(user, run);
  if (found == nullptr) return std::nullopt;
  return summary_of(*found);
}

}  // namespace tuft::control
