// The sessions that have ended, or are about to: why, and what their clients said about them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "control/types/types.h"

namespace tuft::control {

enum class SessionEnd : uint8_t { kSilent, kLimit, kFinished };
std::string_view session_end_name(SessionEnd why);  // "silent", "limit", "finished": label of tuft.sessions.expired

struct EndedSession {
  SessionId id;
  UserId user;
  SessionEnd why = SessionEnd::kSilent;
  SessionFinish finish = {};  // kFinished: what the client said
  std::string created_at;     // ISO 8601
  std::string project_id = {};
  std::string display_name = {};
  std::map<std::string, std::string> user_metadata = {};
};

// Remembers the newest sessions of each user, up to `per_user_max` and kBytesPerUserMax; the one that ended first is
// forgotten first. Nothing of it is in the store: a restart forgets all. Not thread-safe.
class EndedSessions {
 public:
  static constexpr int64_t kBytesPerUserMax = 4 << 20;

  explicit EndedSessions(int per_user_max) : per_user_max_(static_cast<size_t>(per_user_max)) {}

  using Created = std::pair<std::string, SessionId>;  // created_at
  using NewestFirst = std::set<Created, std::greater<>>;

  void add(EndedSession session);
  // Returns null if it is not known.
  const EndedSession* find(const SessionId& id) const;
  // The same for sessions of `user` only.
  const EndedSession* find(const UserId& user, const SessionId& id) const;
  const NewestFirst& of_user(const UserId& user) const;

 private:
  struct OfUser {
    std::map<uint64_t, SessionId> in_order;  // of their ends
    NewestFirst by_creation;
    int64_t bytes = 0;
  };
  void forget_oldest(OfUser& own);

  const size_t per_user_max_;
  std::unordered_map<SessionId, EndedSession> sessions_;
  std::unordered_map<UserId, OfUser> users_;
  uint64_t next_ = 0;
};

}  // namespace tuft::control
