#include "control/futures/pending_futures.h"

#include <iterator>

namespace tuft::control {

void PendingFutures::add(const FuturePtr& future) {
  waiting_.push_back(future.get());
  future->in_pending_ = std::prev(waiting_.end());
  std::list<FuturePtr>& of_session = by_session_[future->keys.session];
  of_session.push_back(future);
  future->in_session_ = std::prev(of_session.end());
}

void PendingFutures::move_to_worker(Future& future) {
  running_.splice(running_.end(), waiting_, future.in_pending_);
}

void PendingFutures::remove(Future& future) {
  (future.sent_ == 0 ? waiting_ : running_).erase(future.in_pending_);
  const auto session = by_session_.find(future.keys.session);
  session->second.erase(future.in_session_);
  if (session->second.empty()) by_session_.erase(session);
}

std::vector<FuturePtr> PendingFutures::of_session(const SessionId& session) const {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::vector<FuturePtr> PendingFutures::all() const {
  std::vector<FuturePtr> all;
  for (const auto& [session, futures] : by_session_) all.insert(all.end(), futures.begin(), futures.end());
  return all;
}

std::vector<FuturePtr> PendingFutures::waiting() const {
  std::vector<FuturePtr> waiting;
  waiting.reserve(waiting_.size());
  for (const Future* future : waiting_) waiting.push_back(*future->in_session_);
  return waiting;
}

}  // namespace tuft::control
