// Client sessions: who they belong to and when they were last heard of.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/persistence.h"
#include "control/types.h"
#include "control/usage.h"
#include "telemetry/metrics.h"

namespace tuft::control {

// A session that was silent this long may be given up when its user is at a limit; never before.
inline constexpr Nanos kSessionIdle = 600 * kSecond;

// Thread-safe.
class Sessions {
 public:
  Sessions(const config::Limits& limits, const Clock& clock, Persistence& persistence, Usage& usage);

  // At the start: one that a former life of the server had. It counts as heard of just now.
  void restore(const SessionRecord& record);

  // The first answer again for a repeated idempotency key of the same user. kResourceExhausted over
  // limits.sessions_per_user_max, kUnavailable while the store is away; `idle` is then the user's longest silent
  // session, if one was silent for kSessionIdle.
  Result<SessionId> create(const UserId& user, const CreateSession& request, SessionId* idle);
  // kNotFound for an unknown session, kPermissionDenied for somebody else's. Being asked for counts as a sign of life.
  Status touch(const UserId& user, const SessionId& session);
  bool is_idle(const SessionId& session) const;

  // For lists; no sign of life. Newest first.
  std::vector<SessionId> of_user(const UserId& user) const;
  bool belongs_to(const UserId& user, const SessionId& session) const;
  // Nothing for a session that is not there.
  std::optional<std::string> project_of(const SessionId& session) const;
  std::map<std::string, std::string> metadata_of(const SessionId& session) const;
  // kNotFound for unknown and foreign sessions alike, kUnavailable while the store is away.
  Status set_project(const UserId& user, const SessionId& session, const std::string& project);

  void remove(const SessionId& session);

 private:
  struct Session {
    UserId user;
    CreateSession request;
    std::string created_at;
    Nanos seen = 0;
    std::string idempotency_key;  // with its user in front
  };

  const config::Limits limits_;
  const Clock& clock_;
  Persistence& persistence_;
  Usage& usage_;
  mutable Mutex mutex_;
  std::unordered_map<SessionId, Session> sessions_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, int> count_by_user_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<std::string, SessionId> by_idempotency_key_ TUFT_GUARDED_BY(mutex_);
  telemetry::BoundCounter active_, expired_;
};

}  // namespace tuft::control
