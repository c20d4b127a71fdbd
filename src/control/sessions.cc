#include "control/sessions.h"

#include "telemetry/log.h"

namespace tuft::control {

Sessions::Sessions(const config::Limits& limits, const Clock& clock, Persistence& persistence)
    : limits_(limits),
      clock_(clock),
      persistence_(persistence),
      active_(telemetry::get_metrics().sessions_active.with({})),
      expired_(telemetry::get_metrics().sessions_expired.with({{"reason", "silent"}})) {}

void Sessions::restore(const SessionRecord& record) {
  const CreateSession& request = record.request;
  const std::string key = request.idempotency_key.empty() ? "" : record.user.str() + '\n' + request.idempotency_key;
  {
    MutexLock lock(mutex_);
    if (!sessions_.emplace(record.id, Session{record.user, request, clock_.monotonic(), key}).second) return;
    ++count_by_user_[record.user];
    if (!key.empty()) by_idempotency_key_.emplace(key, record.id);
  }
  active_.add(1);
}

Result<SessionId> Sessions::create(const UserId& user, const CreateSession& request, SessionId* idle) {
  SessionId id(random_uuid());
  const std::string key = request.idempotency_key.empty() ? "" : user.str() + '\n' + request.idempotency_key;
  const Nanos now = clock_.monotonic();
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
    sessions_.emplace(id, Session{user, request, now, key});
    if (!key.empty()) by_idempotency_key_.emplace(key, id);
  }
  active_.add(1);
  if (persistence_.enabled()) {
    persistence_.write({persistence_.put(SessionRecord{id, user, request, iso_time(clock_.wall())})},
                       telemetry::current_context());
  }
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
