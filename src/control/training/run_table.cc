#include "control/training/run_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "control/accounts/quota.h"

namespace tuft::control {

Result<RunPtr> RunTable::add(const RunPtr& run) {
  for (bool reclaimed = false;; reclaimed = true) {
    std::vector<RunPtr> own;
    {
      MutexLock lock(mutex_);
      if (const auto found = runs_.find(run->id); found != runs_.end()) {
        ++creations_.try_emplace(found->second, Creation{0, true}).first->second.requests;
        return found->second;
      }
      const auto users = by_user_.find(run->user);
      const int count = users == by_user_.end() ? 0 : static_cast<int>(users->second.size());
      if (count < runs_per_user_max_) {
        insert_locked(run);
        creations_.emplace(run, Creation{1, false});
        return run;
      }
      if (count > 0) own.assign(users->second.begin(), users->second.end());
    }
    if (reclaimed || !end_idle_session(own)) break;
  }
  return over_quota(Quota::kRuns,
                    "you have " + std::to_string(runs_per_user_max_) +
                        " training runs (those of ended sessions count until they are saved and removed)",
                    "end some clients and try again in a moment (runs of a session that was silent for a minute make "
                    "room by themselves)");
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

void RunTable::remove(const RunPtr& run) {
  MutexLock lock(mutex_);
  erase_locked(*run);
  const auto own = by_user_.find(run->user);
  own->second.erase(run);
  if (own->second.empty()) by_user_.erase(own);
}

bool RunTable::insert_locked(const RunPtr& run) {
  if (!runs_.emplace(run->id, run).second) return false;
  by_user_[run->user].insert(run);
  return true;
}

// Its id may belong to another run by now.
void RunTable::erase_locked(const Run& run) {
  const auto found = runs_.find(run.id);
  if (found != runs_.end() && found->second.get() == &run) runs_.erase(found);
}

// Runs that end make room by themselves: else each repetition of a refused request would end one more session. A run
// whose worker may hold its adapter and does not answer makes none for now.
bool RunTable::end_idle_session(const std::vector<RunPtr>& own) {
  const bool some_end = std::any_of(own.begin(), own.end(), [](const RunPtr& run) {
    MutexLock lock(run->mutex);
    return run->closed || (run->ending && !run->is_out_of_reach_locked());
  });
  if (some_end) return false;
  for (const RunPtr& run : own) {
    if (!sessions_.is_idle(run->session)) continue;
    {
      MutexLock lock(run->mutex);
      if (run->ending || run->running != nullptr || !run->log.empty() || run->is_out_of_reach_locked()) continue;
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
  const auto own = by_user_.find(user);
  if (own == by_user_.end()) return {};
  return {own->second.begin(), own->second.end()};
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
