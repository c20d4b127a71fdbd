#include "control/futures/operation_activity.h"

namespace tuft::control {

void OperationActivity::change_waiting(const Future& future, int64_t by) {
  UnfinishedWork::Waiting& waiting = users_[future.user].waiting[future.keys.base_model];
  (future.operation == OperationType::kSample ? waiting.sampling : waiting.training) += by;
  if (waiting.training == 0 && waiting.sampling == 0) users_[future.user].waiting.erase(future.keys.base_model);
}

void OperationActivity::advance(Session& session, Nanos now) {
  if (session.unfinished > 0) {
    session.so_far.busy += now - session.since;
    session.so_far.operations += to_seconds(now - session.since) * static_cast<double>(session.unfinished);
  }
  session.since = now;
}

void OperationActivity::add(const Future& future, Nanos now, bool counts_for_session) {
  ++users_[future.user].all;
  change_waiting(future, 1);
  if (!counts_for_session || future.keys.session.empty()) return;
  if (sessions_.size() >= kSessionsMax && !sessions_.contains(future.keys.session)) return;
  Session& session = sessions_[future.keys.session];
  advance(session, now);
  ++session.unfinished;
}

void OperationActivity::move_to_worker(const Future& future) {
  change_waiting(future, -1);
}

void OperationActivity::remove(const Future& future, Nanos now, bool was_waiting, bool counts_for_session) {
  if (was_waiting) change_waiting(future, -1);
  if (--users_[future.user].all == 0) users_.erase(future.user);
  if (!counts_for_session) return;
  const auto found = sessions_.find(future.keys.session);
  if (found == sessions_.end() || found->second.unfinished == 0) return;
  advance(found->second, now);
  --found->second.unfinished;
  if (found->second.unfinished == 0 && found->second.has_ended) sessions_.erase(found);
}

void OperationActivity::forget(const SessionId& session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  found->second.has_ended = true;
  if (found->second.unfinished == 0) sessions_.erase(found);
}

UnfinishedWork OperationActivity::of_user(const UserId& user) const {
  const auto found = users_.find(user);
  return found == users_.end() ? UnfinishedWork() : found->second;
}

SessionActivity OperationActivity::of_session(const SessionId& session, Nanos now) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return {};
  Session copy = found->second;
  advance(copy, now);
  return copy.so_far;
}

}  // namespace tuft::control
