#include "api/routing/console_sessions.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "config/key_hash.h"
#include "telemetry/log.h"

namespace tuft::api {
namespace {

constexpr size_t kTokenBytes = 32;  // random ones; the token is their text

// Adds a stream of bytes that only who has the token knows. A token is used for one text only. The same again undoes
// it.
std::string sealed(std::string_view token, std::string text) {
  for (size_t block = 0; block * sizeof(config::KeyHash) < text.size(); ++block) {
    const config::KeyHash stream = config::hash_of_key("console key " + std::to_string(block) + ":", token);
    for (size_t i = 0; i < stream.size(); ++i) {
      const size_t at = block * stream.size() + i;
      if (at < text.size()) text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ stream[i]);
    }
  }
  return text;
}

Error ended() {
  return {ErrorCode::kUnauthenticated, "the session of the console has ended: log in again", "console_session_ended"};
}

// The host and port of "https://host:port/path", without a port that the scheme implies, in lower case.
std::string host_of(std::string_view url) {
  std::string_view port;
  if (const size_t mark = url.find("://"); mark != std::string_view::npos) {
    port = url.substr(0, mark) == "https" ? ":443" : ":80";
    url.remove_prefix(mark + 3);
  }
  std::string host(url.substr(0, url.find('/')));
  std::transform(host.begin(), host.end(), host.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view implied : {port.empty() ? ":80" : port, port.empty() ? ":443" : port}) {
    if (host.ends_with(implied)) {
      host.resize(host.size() - implied.size());
      break;
    }
  }
  return host;
}

}  // namespace

size_t ConsoleSessions::HashOf::operator()(const Hash& hash) const {
  size_t first = 0;
  std::memcpy(&first, hash.data(), sizeof(first));
  return first;
}

void ConsoleSessions::erase_locked(const Hash& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  sessions_.erase(found->second);
  by_id_.erase(found);
}

ConsoleSessions::Displaced ConsoleSessions::displace_locked(const Session& session, bool by_own_login) {
  Displaced displaced{session.id, session.user, by_own_login};
  erase_locked(displaced.id);
  const auto is_same_users = [&displaced](const Displaced& other) { return other.user == displaced.user; };
  const auto count = static_cast<size_t>(std::count_if(displaced_.begin(), displaced_.end(), is_same_users));
  if (count >= kPerUserMax) displaced_.erase(std::find_if(displaced_.begin(), displaced_.end(), is_same_users));
  if (displaced_.size() >= kDisplacedMax) displaced_.pop_front();
  displaced_.push_back(displaced);
  return displaced;
}

std::vector<ConsoleSessions::Displaced> ConsoleSessions::make_room_locked(const control::UserId& user, Nanos now) {
  std::vector<Displaced> displaced;
  while (!sessions_.empty() && sessions_.front().ends <= now) erase_locked(Hash(sessions_.front().id));
  if (sessions_.size() >= kSessionsMax) displaced.push_back(displace_locked(sessions_.front(), false));
  size_t own = 0;
  for (auto at = sessions_.rbegin(); at != sessions_.rend(); ++at) {
    if (at->user != user || ++own < kPerUserMax) continue;
    displaced.push_back(displace_locked(*at, true));
    break;
  }
  return displaced;
}

Error ConsoleSessions::ended_locked(const Hash& id) const {
  const auto found =
      std::find_if(displaced_.begin(), displaced_.end(), [&id](const Displaced& one) { return one.id == id; });
  if (found == displaced_.end()) return ended();
  const std::string why = found->by_own_login ? "you logged in elsewhere, and a user has at most " +
                                                    std::to_string(kPerUserMax) + " sessions of the console"
                                              : "the console has at most " + std::to_string(kSessionsMax) +
                                                    " sessions, and yours was the oldest";
  return {ErrorCode::kUnauthenticated, "you were signed out because " + why + ": log in again",
          "console_session_displaced"};
}

Result<ConsoleSessions::Login> ConsoleSessions::login(std::string_view key) {
  TUFT_ASSIGN(control::UserId user, authenticate_(key));
  Login made{user, {}};
  append_hex(made.token, config::random_bytes(kTokenBytes));
  const Nanos now = clock_.monotonic();
  Session session{config::hash_of_key("", made.token), std::move(user), now + kLifetime,
                  sealed(made.token, std::string(key))};
  std::vector<Displaced> displaced;
  {
    MutexLock lock(mutex_);
    displaced = make_room_locked(session.user, now);
    sessions_.push_back(std::move(session));
    by_id_.emplace(sessions_.back().id, std::prev(sessions_.end()));
  }
  for (const Displaced& one : displaced) {
    telemetry::log_info("console.session_displaced",
                        one.by_own_login ? "a further login of a user ended the oldest of their console sessions"
                                         : "a login ended the oldest console session, because there are too many",
                        {{"tuft.user", one.user.str()}});
  }
  return made;
}

Result<control::UserId> ConsoleSessions::authenticate(std::string_view token) {
  const Hash id = config::hash_of_key("", token);
  std::string key;
  control::UserId user;
  {
    MutexLock lock(mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return ended_locked(id);
    if (found->second->ends <= clock_.monotonic()) {
      erase_locked(id);
      return ended();
    }
    key = found->second->sealed_key;
    user = found->second->user;
  }
  key = sealed(token, std::move(key));
  Result<control::UserId> now = authenticate_(key);
  std::fill(key.begin(), key.end(), '\0');
  if (now.ok() && *now == user) return now;
  // The key was removed, or given to somebody else.
  MutexLock lock(mutex_);
  erase_locked(id);
  return ended();
}

void ConsoleSessions::logout(std::string_view token) {
  const Hash id = config::hash_of_key("", token);
  MutexLock lock(mutex_);
  erase_locked(id);
}

size_t ConsoleSessions::size() const {
  MutexLock lock(mutex_);
  return sessions_.size();
}

std::string_view console_token(std::string_view cookies) {
  std::string_view token;
  while (!cookies.empty()) {
    const size_t end = std::min(cookies.find(';'), cookies.size());
    const std::string_view cookie = trimmed(cookies.substr(0, end));
    cookies.remove_prefix(std::min(end + 1, cookies.size()));
    const size_t equals = std::min(cookie.find('='), cookie.size());
    if (cookie.substr(0, equals) != kConsoleCookie) continue;
    if (!token.empty()) return {};
    token = cookie.substr(std::min(equals + 1, cookie.size()));
  }
  return token.size() == 2 * kTokenBytes ? token : std::string_view();
}

Status check_own_page(const RequestHeaders& headers, std::string_view public_url) {
  const Error foreign{ErrorCode::kPermissionDenied,
                      "the request comes from a page of another site; open the console at this server's own address",
                      "foreign_origin"};
  if (!headers.fetch_site.empty() && headers.fetch_site != "same-origin" && headers.fetch_site != "none")
    return foreign;
  if (headers.origin.empty()) return {};
  const std::string from = host_of(headers.origin);
  for (const std::string_view own : {headers.host, headers.forwarded_host, public_url}) {
    if (!own.empty() && from == host_of(own)) return {};
  }
  return foreign;
}

Status check_from_console(const RequestHeaders& headers, std::string_view public_url) {
  if (headers.tuft_console != "1") {
    return Error{
        ErrorCode::kUnauthenticated,
        "the session of the console counts only with the header X-Tuft-Console: 1; other clients send an API key "
        "in X-API-Key",
        "console_header"};
  }
  return check_own_page(headers, public_url);
}

}  // namespace tuft::api
