#include "control/sessions.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "control/checkpoint.h"
#include "control/quota.h"
#include "telemetry/log.h"

namespace tuft::control {

std::string_view session_end_name(SessionEnd why) {
  switch (why) {
    case SessionEnd::kSilent:
      return "silent";
    case SessionEnd::kLimit:
      return "limit";
    case SessionEnd::kFinished:
      return "finished";
  }
  return "silent";
}

namespace {

// Nothing for what does not name an end.
std::optional<SessionEnd> session_end_of(std::string_view name) {
  for (const SessionEnd why : {SessionEnd::kSilent, SessionEnd::kLimit, SessionEnd::kFinished}) {
    if (session_end_name(why) == name) return why;
  }
  return std::nullopt;
}

}  // namespace

Sessions::Sessions(const config::Limits& limits, const Clock& clock, Persistence& persistence, Usage& usage)
    : limits_(limits),
      clock_(clock),
      persistence_(persistence),
      usage_(usage),
      active_(telemetry::get_metrics().sessions_active.with({})) {
  for (const SessionEnd why : {SessionEnd::kSilent, SessionEnd::kLimit, SessionEnd::kFinished}) {
    telemetry::get_metrics().sessions_expired.with({{"reason", session_end_name(why)}});
  }
}

void Sessions::restore(const SessionRecord& record) {
  const CreateSession& request = record.request;
  const std::string key = request.idempotency_key.empty() ? "" : record.user.str() + '\n' + request.idempotency_key;
  {
    MutexLock lock(mutex_);
    const Session session{record.user, request, record.created_at, clock_.monotonic(), key};
    const auto [place, is_new] = sessions_.emplace(record.id, session);
    if (!is_new) return;
    if (const auto why = session_end_of(record.ending)) return note_end_locked(record.id, place->second, *why);
    by_user_[record.user].insert(record.id);
    if (!key.empty()) by_idempotency_key_.emplace(key, record.id);
  }
  active_.add(1);
}

Result<SessionId> Sessions::create(const UserId& user, const CreateSession& request) {
  const std::string key = request.idempotency_key.empty() ? "" : user.str() + '\n' + request.idempotency_key;
  auto created = add(user, request, key);
  if (created.ok() || created.error().code != ErrorCode::kResourceExhausted) return created;
  if (!end_idle(longest_idle(user))) return created;
  return add(user, request, key);
}

Result<SessionId> Sessions::add(const UserId& user, const CreateSession& request, const std::string& key) {
  SessionId id(random_uuid());
  const Nanos now = clock_.monotonic();
  const std::string created_at = iso_time(clock_.wall());
  {
    MutexLock lock(mutex_);
    if (const auto found = by_idempotency_key_.find(key); found != by_idempotency_key_.end()) return found->second;
    TUFT_TRY(persistence_.available());
    const auto own = by_user_.find(user);
    const size_t count = own == by_user_.end() ? 0 : own->second.size();
    if (count >= static_cast<size_t>(limits_.sessions_per_user_max)) {
      return over_quota(Quota::kSessions, "you have " + std::to_string(count) + " sessions",
                        "end some clients (a session that was silent for ten minutes makes room)");
    }
    by_user_[user].insert(id);
    sessions_.emplace(id, Session{user, request, created_at, now, key});
    if (!key.empty()) by_idempotency_key_.emplace(key, id);
    // Under the lock, so that a repetition that finds it waits for this write, too.
    if (persistence_.enabled()) {
      persistence_.write({persistence_.put(SessionRecord{id, user, request, created_at, {}})},
                         telemetry::current_context());
    }
  }
  active_.add(1);
  usage_.audit({.action = AuditAction::kSessionCreated, .user = user, .session = id});
  telemetry::log_info("session.created", "session created",
                      {{"tuft.session_id", id.str()}, {"tuft.sdk_version", request.sdk_version}});
  return id;
}

Status Sessions::touch(const UserId& user, const SessionId& session) {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.user != user || found->second.ending) {
    return unknown_locked(user, session);
  }
  found->second.seen = now;
  return {};
}

bool Sessions::is_idle(const SessionId& session) const {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() || found->second.ending || found->second.seen <= now - idle_after();
}

void Sessions::note_alive(const SessionId& session) {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  if (const auto found = sessions_.find(session); found != sessions_.end()) found->second.seen = now;
}

bool Sessions::exists(const SessionId& session) const {
  MutexLock lock(mutex_);
  return sessions_.contains(session);
}

std::vector<SessionId> Sessions::of_user(const UserId& user) const {
  std::vector<std::pair<std::string, SessionId>> found;
  {
    MutexLock lock(mutex_);
    const auto own = by_user_.find(user);
    if (own == by_user_.end()) return {};
    for (const SessionId& id : own->second) found.emplace_back(sessions_.at(id).created_at, id);
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
  return found != sessions_.end() && found->second.user == user && !found->second.ending;
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
  if (found == sessions_.end() || found->second.user != user || found->second.ending) {
    return not_found("unknown session: it does not exist or has ended", "session_not_found");
  }
  Session& session = found->second;
  session.request.project_id = project;
  // Under the lock, so that the store sees changes in their order, and none of a session that was removed.
  if (persistence_.enabled()) {
    persistence_.write({persistence_.put(SessionRecord{id, user, session.request, session.created_at, {}})},
                       telemetry::current_context());
  }
  return {};
}

}  // namespace tuft::control
