// How many operations of each user and each session have not finished, now and on average.
//
// Not thread-safe: belongs to FutureStore and its lock. A call costs map lookups, whatever others have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "control/futures/future.h"
#include "control/types/types.h"

namespace tuft::control {

// The unfinished operations of a user.
struct UnfinishedWork {
  int64_t all = 0;
  // Those that no worker has, by base model. A model without any may be missing.
  struct Waiting {
    int64_t training = 0, sampling = 0;
  };
  std::map<std::string, Waiting> waiting = {};
};

// What a session has done with its time so far.
struct SessionActivity {
  Nanos busy = 0;         // the time in which one of its operations was unfinished
  double operations = 0;  // the sum of the seconds that each of its operations was unfinished
};

class OperationActivity {
 public:
  // Further sessions are not counted. More than all users together usually have.
  static constexpr size_t kSessionsMax = 65'536;

  // `counts_for_session`: a client of the session asked for it.
  void add(const Future& future, Nanos now, bool counts_for_session);
  void move_to_worker(const Future& future);
  // `was_waiting`: no worker had it. `counts_for_session`: as it was added.
  void remove(const Future& future, Nanos now, bool was_waiting, bool counts_for_session);
  // The session has ended: what is known of it goes with its last operation.
  void forget(const SessionId& session);

  UnfinishedWork of_user(const UserId& user) const;
  SessionActivity of_session(const SessionId& session, Nanos now) const;

 private:
  struct Session {
    int64_t unfinished = 0;
    Nanos since = 0;  // when `so_far` was brought up to date
    SessionActivity so_far;
    bool has_ended = false;
  };
  static void advance(Session& session, Nanos now);
  void change_waiting(const Future& future, int64_t by);

  std::unordered_map<UserId, UnfinishedWork> users_;  // those that have any
  std::unordered_map<SessionId, Session> sessions_;
};

}  // namespace tuft::control
