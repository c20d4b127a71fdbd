// Client sessions: their users, the time of their last sign of life, and how they end.
//
// Every session ends in the same way. It is marked as ending, also in its record; from then on clients do not find its
// id. Then the callback of on_end() closes what belongs to it. That may take several attempts, because runs are saved:
// sweep() repeats it until nothing is left, and then erases the record. A restart of the server changes nothing of
// this.
//
// A user's sessions are limited in number and in the memory of what their clients say about themselves. Those that end
// do not count: they stay only as long as they have runs, which count in limits.runs_per_user_max. The records of a
// user that the store has not written yet are limited, too: other users' writes wait behind them.
//
// A call costs what it returns and the logarithm of what the user has. Only create() at the user's limit looks at all
// sessions of the user, and sweep() at all that are to end. The maps grow in small steps (sharded_map.h).
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/byte_account.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/sharded_map.h"
#include "config/config.h"
#include "control/accounts/usage.h"
#include "control/persistence/persistence.h"
#include "control/sessions/ended_sessions.h"
#include "control/types/page.h"
#include "control/types/ranked_set.h"
#include "control/types/session_query.h"
#include "control/types/types.h"
#include "telemetry/instrument.h"

namespace tuft::control {

// A session without a sign of life for this long, which is six heartbeats of the SDK, is idle: it is ended, and its
// changed runs are saved, when its user is at a limit. Without that it ends after limits.session_idle_seconds; if those
// are fewer, a session is idle after them.
inline constexpr Nanos kSessionIdle = 60 * kSecond;

// It has more than 25 methods: short ones that look a session up, and the steps of a session's life, which share one
// lock and its indexes.
//
// Thread-safe.
class Sessions {
 public:
  // The bytes of a user's session records that may wait for the store.
  static constexpr int64_t kUnwrittenBytesMax = 2 << 20;

  Sessions(const config::Limits& limits, const Clock& clock, Persistence& persistence, Usage& usage);

  // At the start: a session of the former server process. It counts as alive now; one that was ending still ends.
  void restore(const SessionRecord& record);

  // Closes what belongs to a session that ends. Returns true if nothing is left. Called without a lock.
  using Close = std::function<bool(const UserId&, const SessionId&, SessionEnd)>;
  // Requires: called once, before any other thread uses the sessions.
  void on_end(Close close) { close_ = std::move(close); }

  // Returns a new session, or the first one again for a repeated idempotency key of the user. At
  // limits.sessions_per_user_max and limits.session_bytes_per_user_max the user's longest idle session ends.
  // kResourceExhausted if none is idle, or if the store has too many of the user's records to write; kInvalidArgument
  // if a field is too large; kUnavailable while the store is away.
  Result<SessionId> create(const UserId& user, const CreateSession& request);
  // Notes a sign of life. kNotFound for an unknown session, for somebody else's (the same message), and for one that
  // has ended (with the reason).
  Status touch(const UserId& user, const SessionId& session);
  // Notes a sign of life. Requires: the caller has checked the user.
  void note_alive(const SessionId& session);
  bool is_idle(const SessionId& session) const;

  // Called, without a lock, for a session without a sign of life for limits.sampling_silence_seconds; once, until there
  // is another one.
  using Silent = std::function<void(const SessionId&)>;
  // Requires: called once, before any other thread uses the sessions.
  void on_silence(Silent silent) { silent_ = std::move(silent); }

  // Ends a session for its user, for the reason that its client gives; durable with Persistence::when_durable(). A
  // repetition is no error and changes nothing. kNotFound as in touch(); kInvalidArgument if the detail is too long;
  // kUnavailable, without an effect, while the store is away.
  Status end(const UserId& user, const SessionId& session, const SessionFinish& finish);
  // Ends a session because its user is at a limit. Returns false if it is not idle.
  bool end_idle(const SessionId& session);
  // Ends sessions that are silent for too long, calls on_silence() for others, and continues to close those that end.
  void sweep();
  // Returns in words why a session of the user has ended; empty if it is not known.
  std::string ending_of(const UserId& user, const SessionId& session) const;

  // Returns a page of the user's sessions, newest first. This and what follows is no sign of life.
  Page<SessionId> of_user(const UserId& user, const PageRequest& page) const;
  // Finds sessions of the user, also ended ones as far as they are remembered, newest first; without the numbers of
  // their checkpoints. Looks at the user's sessions only, and holds up others for a few of them at a time.
  SessionsFound search(const UserId& user, const SessionQuery& query) const;
  // What is known of a session of the user beyond what search() finds; nothing if it has ended.
  struct Life {
    Nanos heard = 0;  // monotonic; the last sign of life
    std::string sdk_version;
  };
  std::optional<Life> life_of(const UserId& user, const SessionId& session) const;
  // How many sessions the user has, and the bytes of what their clients said about themselves.
  struct Use {
    int64_t count = 0, bytes = 0;
  };
  Use use_of(const UserId& user) const;
  // Returns the user of a session that is there or remembered; empty: unknown.
  UserId owner_of(const SessionId& session) const;
  bool belongs_to(const UserId& user, const SessionId& session) const;
  // Returns the project id; nothing for an unknown session.
  std::optional<std::string> project_of(const SessionId& session) const;
  std::map<std::string, std::string> metadata_of(const SessionId& session) const;
  std::string display_name_of(const SessionId& session) const;
  // kNotFound for unknown and foreign sessions alike; kInvalidArgument, kResourceExhausted and kUnavailable as in
  // create().
  Status set_project(const UserId& user, const SessionId& session, const std::string& project);

  bool exists(const SessionId& session) const;

 private:
  struct Session {
    UserId user;
    CreateSession request;
    std::string created_at;
    Nanos seen = 0;
    std::string idempotency_key;  // after the user and a line break; may be empty
    std::optional<SessionEnd> ending = std::nullopt;
    std::list<SessionId>::iterator in_silence = {};  // in by_silence_ or silent_long_, unless it ends
    bool is_silent = false;                          // it is in silent_long_
    ByteAccount::Hold memory = {};
  };
  using Created = EndedSessions::Created;

  // A record on its way to the store.
  struct Unwritten {
    std::vector<store::Change> changes;  // none: nothing is kept
    std::shared_ptr<ByteAccount::Hold> bytes;
  };

  Result<SessionId> add(const UserId& user, const CreateSession& request, const std::string& key);
  Result<Unwritten> take_unwritten(const SessionRecord& record) const;
  void write(const UserId& user, const SessionId& id, Unwritten record);
  Status check_limits_locked(const UserId& user, ByteAccount::Hold& memory, int64_t bytes) const TUFT_REQUIRES(mutex_);
  SessionId longest_idle(const UserId& user) const;
  // kNotFound for an unknown session, for somebody else's, and for one that ends.
  Result<Session*> find_own_locked(const UserId& user, const SessionId& id) TUFT_REQUIRES(mutex_);
  // Returns false if it does not exist or ends already.
  bool begin_end(const SessionId& session, SessionEnd why, const SessionFinish& finish = {});
  void begin_locked(const SessionId& id, Session& session) TUFT_REQUIRES(mutex_);
  void hear_locked(Session& session, Nanos now) TUFT_REQUIRES(mutex_);
  void note_end_locked(const SessionId& id, Session& session, SessionEnd why, const SessionFinish& finish)
      TUFT_REQUIRES(mutex_);
  void go_on_ending(const SessionId& session);
  std::vector<SessionId> take_silent_locked(Nanos now) TUFT_REQUIRES(mutex_);
  std::vector<SessionId> to_end_locked(Nanos now) const TUFT_REQUIRES(mutex_);
  std::string sentence_of(const EndedSession& ended) const;
  Error unknown_locked(const UserId& user, const SessionId& session) const TUFT_REQUIRES(mutex_);
  bool remove(const SessionId& session);
  // Looks at the next sessions after `at`. Returns false when the search has ended.
  bool search_piece(const UserId& user, const SessionQuery& query, std::optional<Created>& at,
                    SessionsFound& found) const;
  std::optional<SessionFound> match_active_locked(const SessionQuery& query, const Created& created) const
      TUFT_REQUIRES(mutex_);
  std::optional<SessionFound> match_ended_locked(const SessionQuery& query, const Created& created) const
      TUFT_REQUIRES(mutex_);
  Nanos idle_after() const;

  const config::Limits limits_;
  const Clock& clock_;
  Persistence& persistence_;
  Usage& usage_;
  Close close_;
  Silent silent_;
  const std::shared_ptr<ByteAccount> memory_ = std::make_shared<ByteAccount>();     // by user
  const std::shared_ptr<ByteAccount> unwritten_ = std::make_shared<ByteAccount>();  // by user
  mutable Mutex mutex_;
  ShardedMap<SessionId, Session> sessions_ TUFT_GUARDED_BY(mutex_);
  // All without the sessions that end: newest first, and the longest silent first.
  std::unordered_map<UserId, RankedSet<Created, std::greater<>>> by_user_ TUFT_GUARDED_BY(mutex_);
  std::list<SessionId> by_silence_ TUFT_GUARDED_BY(mutex_);   // those that were not passed to on_silence()
  std::list<SessionId> silent_long_ TUFT_GUARDED_BY(mutex_);  // the others
  std::unordered_set<SessionId> ending_ TUFT_GUARDED_BY(mutex_);
  ShardedMap<std::string, SessionId> by_idempotency_key_ TUFT_GUARDED_BY(mutex_);
  EndedSessions ended_ TUFT_GUARDED_BY(mutex_);
  Nanos next_look_ TUFT_GUARDED_BY(mutex_) = 0;
  const telemetry::BoundCounter active_;  // counts nothing in a view of a server that stands by
};

}  // namespace tuft::control
