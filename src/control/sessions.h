// Client sessions: who they belong to, when they were last heard of, and how they end.
//
// There is one way to end: end() and its like mark the session, in its record too, after which its id is unknown to
// clients, and whoever listens (on_end) closes what belongs to it. That may take a while - runs are saved - and is
// asked for again by sweep() until nothing is left; only then the record goes. After a restart in between the session
// is as unknown as before, and sweep() goes on.
//
// Each call costs what it gives and the logarithm of what the user has, but for create() at the user's limit, which
// looks at all of the user's; sweep() looks at those that are to end only. The maps grow in small steps (steady_map.h).
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/page.h"
#include "control/persistence.h"
#include "control/ranked_set.h"
#include "control/steady_map.h"
#include "control/types.h"
#include "control/usage.h"
#include "telemetry/metrics.h"

namespace tuft::control {

// A session that was silent this long is idle: it is ended when its user is at a limit. Without need it is ended after
// limits.session_idle_seconds, and then it is never called idle later than that.
inline constexpr Nanos kSessionIdle = 600 * kSecond;

enum class SessionEnd : uint8_t { kSilent, kLimit, kFinished };
std::string_view session_end_name(SessionEnd why);  // "silent", "limit", "finished": label of tuft.sessions.expired

// Thread-safe.
class Sessions {
 public:
  Sessions(const config::Limits& limits, const Clock& clock, Persistence& persistence, Usage& usage);

  // At the start: one that a former life of the server had. It counts as heard of just now; one that was ending still
  // ends.
  void restore(const SessionRecord& record);

  // Closes what belongs to a session that ends. True: nothing of it is left. It is called without a lock.
  using Close = std::function<bool(const UserId&, const SessionId&, SessionEnd)>;
  // Once, before clients are heard.
  void on_end(Close close) { close_ = std::move(close); }

  // The first answer again for a repeated idempotency key of the same user. At limits.sessions_per_user_max the user's
  // longest idle session ends. kResourceExhausted where there is none, kUnavailable while the store is away.
  Result<SessionId> create(const UserId& user, const CreateSession& request);
  // kNotFound for an unknown session, somebody else's (the same), and one that has ended (with the reason). Being asked
  // for counts as a sign of life.
  Status touch(const UserId& user, const SessionId& session);
  // A sign of life from whoever has shown that it is theirs.
  void note_alive(const SessionId& session);
  bool is_idle(const SessionId& session) const;

  // By its user; durable with Persistence::when_durable(). Once more is no error. kNotFound as touch(); kUnavailable,
  // and nothing has happened, while the store is away.
  Status end(const UserId& user, const SessionId& session);
  // Because its user is at a limit; false: it is not idle.
  bool end_idle(const SessionId& session);
  // Ends those that are silent for too long, and goes on with those that end.
  void sweep();
  // Why a session of the user is not there, in words; empty: not known.
  std::string ending_of(const UserId& user, const SessionId& session) const;

  // For lists; no sign of life. Newest first.
  Page<SessionId> of_user(const UserId& user, const PageRequest& page) const;
  bool belongs_to(const UserId& user, const SessionId& session) const;
  // Nothing for a session that is not there.
  std::optional<std::string> project_of(const SessionId& session) const;
  std::map<std::string, std::string> metadata_of(const SessionId& session) const;
  // kNotFound for unknown and foreign sessions alike, kUnavailable while the store is away.
  Status set_project(const UserId& user, const SessionId& session, const std::string& project);

  bool exists(const SessionId& session) const;

 private:
  struct Session {
    UserId user;
    CreateSession request;
    std::string created_at;
    Nanos seen = 0;
    std::string idempotency_key;  // with its user in front
    std::optional<SessionEnd> ending = std::nullopt;
    std::list<SessionId>::iterator in_silence = {};  // unless it ends
  };
  using Created = std::pair<std::string, SessionId>;  // created_at
  struct Ended {
    UserId user;
    std::string why;
  };

  Result<SessionId> add(const UserId& user, const CreateSession& request, const std::string& key);
  SessionId longest_idle(const UserId& user) const;
  // False: it does not exist, or ends already.
  bool begin_end(const SessionId& session, SessionEnd why);
  void begin_locked(const SessionId& id, Session& session) TUFT_REQUIRES(mutex_);
  void hear_locked(Session& session, Nanos now) TUFT_REQUIRES(mutex_);
  void note_end_locked(const SessionId& id, Session& session, SessionEnd why) TUFT_REQUIRES(mutex_);
  void go_on_ending(const SessionId& session);
  std::string sentence_of(SessionEnd why) const;
  Error unknown_locked(const UserId& user, const SessionId& session) const TUFT_REQUIRES(mutex_);
  bool remove(const SessionId& session);
  Nanos idle_after() const;

  const config::Limits limits_;
  const Clock& clock_;
  Persistence& persistence_;
  Usage& usage_;
  Close close_;
  mutable Mutex mutex_;
  SteadyMap<SessionId, Session> sessions_ TUFT_GUARDED_BY(mutex_);
  // Without those that end: newest first, and the longest silent first.
  std::unordered_map<UserId, RankedSet<Created, std::greater<>>> by_user_ TUFT_GUARDED_BY(mutex_);
  std::list<SessionId> by_silence_ TUFT_GUARDED_BY(mutex_);
  std::unordered_set<SessionId> ending_ TUFT_GUARDED_BY(mutex_);
  SteadyMap<std::string, SessionId> by_idempotency_key_ TUFT_GUARDED_BY(mutex_);
  // The newest of those that ended.
  std::unordered_map<SessionId, Ended> ended_ TUFT_GUARDED_BY(mutex_);
  std::deque<SessionId> ended_order_ TUFT_GUARDED_BY(mutex_);
  Nanos next_look_ TUFT_GUARDED_BY(mutex_) = 0;
  telemetry::BoundCounter active_;
};

}  // namespace tuft::control
