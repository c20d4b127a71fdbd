#include "control/sessions.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "control/checkpoint.h"
#include "telemetry/log.h"

namespace tuft::control {

Sessions::Sessions(const config::Limits& limits, const Clock& clock, Persistence& persistence, Usage& usage)
    : limits_(limits),
      clock_(clock),
      persistence_(persistence),
      usage_(usage),
      active_(telemetry::get_metrics().sessions_active.with({})),
      expired_(telemetry::get_metrics().sessions_expired.with({{"reason", "silent"}})) {}

void Sessions::restore(const SessionRecord& record) {
  const CreateSession& request = record.request;
  const std::string key = request.idempotency_key.empty() ? "" : record.user.str() + '\n' + request.idempotency_key;
  {
    MutexLock lock(mutex_);
    const Session session{record.user, request, record.created_at, clock_.monotonic(), key};
    if (!sessions_.emplace(record.id, session).second) return;
    ++count_by_user_[record.user];
    if (!key.empty()) by_idempotency_key_.emplace(key, record.id);
  }
  active_.add(1);
}

Result<SessionId> Sessions::create(const UserId& user, const CreateSession& request, SessionId* idle) {
  SessionId id(random_uuid());
  const std::string key = request.idempotency_key.empty() ? "" : user.str() + '\n' + request.idempotency_key;
  const Nanos now = clock_.monotonic();
  const std::string created_at = iso_time(clock_.wall());
  {
    MutexLock lock(mutex_);
    if (const auto found = by_idempotency_key_.find(key); found != by_idempotency_key_.end()) return found->second;
    TUFT_TRY(persistence_.available());
    int& count = count_by_user_[user];
    if (count >= limits_.sessions_per_user_max) {
      Nanos longest = now - kSessionIdle;
      for (const auto& [other, session] : sessions_) {
        if (session.user != user || session.seen > longest) continue;
        longest = session.seen;
        *idle = other;
      }
      return Error{ErrorCode::kResourceExhausted,
                   "you have " + std::to_string(count) +
                       " sessions, which is the limit; end some clients (a session counts until it was silent for ten "
                       "minutes), or raise limits.sessions_per_user_max in the server's configuration",
                   "sessions_per_user_max"};
    }
    ++count;
    sessions_.emplace(id, Session{user, request, created_at, now, key});
    if (!key.empty()) by_idempotency_key_.emplace(key, id);
  }
  active_.add(1);
  if (persistence_.enabled()) {
    persistence_.write({persistence_.put(SessionRecord{id, user, request, created_at})}, telemetry::current_context());
  }
  usage_.audit({.action = AuditAction::kSessionCreated, .user = user, .session = id});
  telemetry::log_info("session.created", "session created",
                      {{"tuft.session_id", id.str()}, {"tuft.sdk_version", request.sdk_version}});
  return id;
}

Status Sessions::touch(const UserId& user, const SessionId& session) {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) {
    return not_found("unknown session: create one first; sessions outlive the server only with persistence",
                     "session_not_found");
  }
  if (found->second.user != user) {
    return Error{ErrorCode::kPermissionDenied, "this session belongs to another user", "foreign_session"};
  }
  found->second.seen = now;
  return {};
}

bool Sessions::is_idle(const SessionId& session) const {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() || found->second.seen <= now - kSessionIdle;
}

std::vector<SessionId> Sessions::of_user(const UserId& user) const {
  std::vector<std::pair<std::string, SessionId>> found;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) {
      if (session.user == user) found.emplace_back(session.created_at, id);
    }
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<SessionId> ids;
  ids.reserve(found.size());
  for (auto& [created_at, id] : found) ids.push_back(std::move(id));
  return ids;
}

bool Sessions::belongs_to(const UserId& user, const SessionId& session) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.user == user;
}

std::map<std::string, std::string> Sessions::metadata_of(const SessionId& session) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? std::map<std::string, std::string>() : found->second.request.user_metadata;
}

std::optional<std::string> Sessions::project_of(const SessionId& session) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return std::nullopt;
  return found->second.request.project_id;
}

Status Sessions::set_project(const UserId& user, const SessionId& id, const std::string& project) {
  TUFT_TRY(persistence_.available());
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.user != user) {
    return not_found("unknown session: it does not exist or has ended", "session_not_found");
  }
  Session& session = found->second;
  session.request.project_id = project;
  // Under the lock, so that the store sees changes in their order, and none of a session that was removed.
  if (persistence_.enabled()) {
    persistence_.write({persistence_.put(SessionRecord{id, user, session.request, session.created_at})},
                       telemetry::current_context());
  }
  return {};
}

void Sessions::remove(const SessionId& session) {
  {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    if (const auto count = count_by_user_.find(found->second.user); --count->second == 0) count_by_user_.erase(count);
    if (!found->second.idempotency_key.empty()) by_idempotency_key_.erase(found->second.idempotency_key);
    sessions_.erase(found);
  }
  active_.add(-1);
  expired_.add(1);
  if (persistence_.enabled()) persistence_.write({persistence_.erase(session)}, telemetry::current_context());
  telemetry::log_info("session.closed", "session closed: its user was at a limit and it was silent",
                      {{"tuft.session_id", session.str()}});
}

}  // namespace tuft::control
