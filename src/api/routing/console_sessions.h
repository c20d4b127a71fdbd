// The sessions of the web console: after a login with an API key, a cookie stands for the key.
//
// The cookie counts only with the header X-Tuft-Console: 1, which no other site can send, and if the browser says that
// the request comes from a page of this server. It is HttpOnly, so no script can read it.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/exchange.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/types/types.h"

namespace tuft::api {

inline constexpr std::string_view kConsoleCookie = "tuft_console";

// Thread-safe.
//
// In memory is the SHA-256 of a session's token, and its key, encrypted with the token: neither a copy of the memory
// nor the cookie alone gives a key. Each request authenticates the key again, so that the session of a removed key
// ends.
class ConsoleSessions {
 public:
  static constexpr Nanos kLifetime = 12 * 3600 * kSecond;
  static constexpr size_t kPerUserMax = 16;       // a further login ends the user's oldest session
  static constexpr size_t kSessionsMax = 10'000;  // a further login ends the oldest session of all
  static constexpr size_t kDisplacedMax = 1'000;  // of the sessions that ended so, the newest are remembered

  using Authenticate = std::function<Result<control::UserId>(std::string_view key)>;
  ConsoleSessions(Authenticate authenticate, const Clock& clock)
      : authenticate_(std::move(authenticate)), clock_(clock) {}

  struct Login {
    control::UserId user;
    std::string token;  // a secret, for the cookie
  };
  // Returns a new session, or the error of authenticate(). Logs which sessions it ended ("console.session_displaced").
  Result<Login> login(std::string_view key) TUFT_EXCLUDES(mutex_);
  // kUnauthenticated "console_session_ended" for an unknown token, an old session, and one whose key was removed;
  // "console_session_displaced" for a session that a later login ended, as long as that is remembered.
  Result<control::UserId> authenticate(std::string_view token) TUFT_EXCLUDES(mutex_);
  // Ends a session; an unknown one is ignored.
  void logout(std::string_view token) TUFT_EXCLUDES(mutex_);
  size_t size() const TUFT_EXCLUDES(mutex_);

 private:
  using Hash = std::array<unsigned char, 32>;
  struct HashOf {
    size_t operator()(const Hash& hash) const;
  };
  struct Session {
    Hash id;
    control::UserId user;
    Nanos ends = 0;
    std::string sealed_key;
  };
  using Sessions = std::list<Session>;  // the oldest first
  // A session that a login ended.
  struct Displaced {
    Hash id;
    control::UserId user;
    bool by_own_login = true;  // false: there were too many sessions of all users
  };

  void erase_locked(const Hash& id) TUFT_REQUIRES(mutex_);
  // Makes room for a session of the user, and returns the sessions that it ended.
  std::vector<Displaced> make_room_locked(const control::UserId& user, Nanos now) TUFT_REQUIRES(mutex_);
  Displaced displace_locked(const Session& session, bool by_own_login) TUFT_REQUIRES(mutex_);
  Error ended_locked(const Hash& id) const TUFT_REQUIRES(mutex_);

  const Authenticate authenticate_;
  const Clock& clock_;
  mutable Mutex mutex_;
  Sessions sessions_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<Hash, Sessions::iterator, HashOf> by_id_ TUFT_GUARDED_BY(mutex_);
  std::deque<Displaced> displaced_ TUFT_GUARDED_BY(mutex_);  // the oldest first; of each user at most kPerUserMax
};

// Returns the token in a Cookie header; empty if there is none, or more than one.
std::string_view console_token(std::string_view cookies);

// Returns kPermissionDenied if the browser says that the request comes from a page of another site. Behind a proxy the
// own host is that of X-Forwarded-Host, or of the configured `public_url`.
Status check_own_page(const RequestHeaders& headers, std::string_view public_url);
// The same, and kUnauthenticated without X-Tuft-Console: 1.
Status check_from_console(const RequestHeaders& headers, std::string_view public_url);

}  // namespace tuft::api
