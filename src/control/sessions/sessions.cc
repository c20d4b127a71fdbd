#include "control/sessions/sessions.h"

#include <functional>
#include <utility>

#include "control/accounts/quota.h"
#include "control/types/checkpoint.h"
#include "metrics/tenants.h"
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

// Returns nothing for an unknown name.
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
      active_(metrics::tenants().sessions_active.with({})) {
  for (const SessionEnd why : {SessionEnd::kSilent, SessionEnd::kLimit, SessionEnd::kFinished}) {
    metrics::tenants().sessions_expired.with({{"reason", session_end_name(why)}});
  }
}

void Sessions::restore(const SessionRecord& record) {
  const CreateSession& request = record.request;
  const std::string key = request.idempotency_key.empty() ? "" : record.user.str() + '\n' + request.idempotency_key;
  {
    MutexLock lock(mutex_);
    const auto [session, is_new] =
        sessions_.emplace(record.id, Session{record.user, request, record.created_at, clock_.monotonic(), key});
    if (!is_new) return;
    if (const auto why = session_end_of(record.ending)) return note_end_locked(record.id, *session, *why);
    begin_locked(record.id, *session);
  }
  active_.add(1);
}

void Sessions::begin_locked(const SessionId& id, Session& session) {
  session.in_silence = by_silence_.insert(by_silence_.end(), id);
  by_user_[session.user].insert(Created(session.created_at, id));
  if (!session.idempotency_key.empty()) by_idempotency_key_.emplace(session.idempotency_key, id);
}

void Sessions::hear_locked(Session& session, Nanos now) {
  session.seen = now;
  if (!session.ending) by_silence_.splice(by_silence_.end(), by_silence_, session.in_silence);
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
    if (const SessionId* known = by_idempotency_key_.find(key); known != nullptr) return *known;
    TUFT_TRY(persistence_.available());
    const auto own = by_user_.find(user);
    const size_t count = own == by_user_.end() ? 0 : own->second.size();
    if (count >= static_cast<size_t>(limits_.sessions_per_user_max)) {
      return over_quota(Quota::kSessions, "you have " + std::to_string(count) + " sessions",
                        "end some clients (a session that was silent for ten minutes makes room)");
    }
    begin_locked(id, *sessions_.emplace(id, Session{user, request, created_at, now, key}).first);
    // Written under the lock, so that the answer to a repetition waits for this write, too.
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
  Session* found = sessions_.find(session);
  if (found == nullptr || found->user != user || found->ending) return unknown_locked(user, session);
  hear_locked(*found, now);
  return {};
}

bool Sessions::is_idle(const SessionId& session) const {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const Session* found = sessions_.find(session);
  return found == nullptr || found->ending || found->seen <= now - idle_after();
}

void Sessions::note_alive(const SessionId& session) {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  if (Session* found = sessions_.find(session); found != nullptr) hear_locked(*found, now);
}

bool Sessions::exists(const SessionId& session) const {
  MutexLock lock(mutex_);
  return sessions_.find(session) != nullptr;
}

Page<SessionId> Sessions::of_user(const UserId& user, const PageRequest& request) const {
  Page<Created> own{{}, request.offset, request.limit, 0};
  {
    MutexLock lock(mutex_);
    if (const auto found = by_user_.find(user); found != by_user_.end()) own = page_of(found->second, request);
  }
  Page<SessionId> page{{}, own.offset, own.limit, own.total};
  for (Created& each : own.items) page.items.push_back(std::move(each.second));
  return page;
}

bool Sessions::belongs_to(const UserId& user, const SessionId& session) const {
  MutexLock lock(mutex_);
  const Session* found = sessions_.find(session);
  return found != nullptr && found->user == user && !found->ending;
}

std::map<std::string, std::string> Sessions::metadata_of(const SessionId& session) const {
  MutexLock lock(mutex_);
  const Session* found = sessions_.find(session);
  return found == nullptr ? std::map<std::string, std::string>() : found->request.user_metadata;
}

std::optional<std::string> Sessions::project_of(const SessionId& session) const {
  MutexLock lock(mutex_);
  const Session* found = sessions_.find(session);
  if (found == nullptr) return std::nullopt;
  return found->request.project_id;
}

Status Sessions::set_project(const UserId& user, const SessionId& id, const std::string& project) {
  TUFT_TRY(persistence_.available());
  MutexLock lock(mutex_);
  Session* found = sessions_.find(id);
  if (found == nullptr || found->user != user || found->ending) {
    return not_found("unknown session: it does not exist or has ended", "session_not_found");
  }
  Session& session = *found;
  session.request.project_id = project;
  // Written under the lock, so that the store sees changes in order, and none of a session that was removed.
  if (persistence_.enabled()) {
    persistence_.write({persistence_.put(SessionRecord{id, user, session.request, session.created_at, {}})},
                       telemetry::current_context());
  }
  return {};
}

}  // namespace tuft::control
