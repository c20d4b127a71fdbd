// The futures that have not finished, in the order in which they were admitted and in which workers got them.
#pragma once

#include <list>
#include <unordered_map>
#include <vector>

#include "control/futures/future.h"

namespace tuft::control {

// Not thread-safe: belongs to FutureStore and its lock.
class PendingFutures {
 public:
  void add(const FuturePtr& future);
  // A worker gets the operation now.
  void move_to_worker(Future& future);
  void remove(Future& future);

  // Returns the oldest one that no worker has, and the one that has been at a worker for longest; null: none.
  const Future* oldest_waiting() const { return waiting_.empty() ? nullptr : waiting_.front(); }
  const Future* oldest_running() const { return running_.empty() ? nullptr : running_.front(); }
  // Returns the futures of a session, oldest first.
  std::vector<FuturePtr> of_session(const SessionId& session) const;
  std::vector<FuturePtr> all() const;
  // Returns those that no worker has.
  std::vector<FuturePtr> waiting() const;

 private:
  std::unordered_map<SessionId, std::list<FuturePtr>> by_session_;  // oldest first
  std::list<Future*> waiting_;                                      // for a worker, oldest first
  std::list<Future*> running_;                                      // longest at a worker first
};

}  // namespace tuft::control
