// How sessions end.
#include <algorithm>
#include <utility>

#include "control/sessions/sessions.h"
#include "metrics/tenants.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr size_t kEndedMax = 16'384;
constexpr Nanos kLookInterval = kSecond;

}  // namespace

Nanos Sessions::idle_after() const {
  return std::min(kSessionIdle, limits_.session_idle_seconds * kSecond);
}

SessionId Sessions::longest_idle(const UserId& user) const {
  SessionId found;
  Nanos longest = clock_.monotonic() - idle_after();
  MutexLock lock(mutex_);
  const auto own = by_user_.find(user);
  if (own == by_user_.end()) return found;
  for (const auto& [created_at, id] : own->second) {
    const Nanos seen = sessions_.find(id)->seen;
    if (seen > longest) continue;
    longest = seen;
    found = id;
  }
  return found;
}

std::string Sessions::sentence_of(SessionEnd why) const {
  switch (why) {
    case SessionEnd::kSilent:
      return "its session ended: nothing was heard of it for " + std::to_string(limits_.session_idle_seconds) +
             " s (limits.session_idle_seconds)";
    case SessionEnd::kLimit:
      return "its session ended: it was silent for " + std::to_string(idle_after() / kSecond) +
             " s, and its user was at a limit";
    case SessionEnd::kFinished:
      return "its session ended: its client finished it";
  }
  return {};
}

// Only the user of a session learns how it ended.
Error Sessions::unknown_locked(const UserId& user, const SessionId& session) const {
  const auto ended = ended_.find(session);
  if (ended != ended_.end() && ended->second.user == user) {
    return not_found("this session has ended; " + sentence_of(ended->second.why) + ". Create a new one",
                     "session_ended");
  }
  return not_found("unknown session: create one first; sessions outlive the server only with persistence",
                   "session_not_found");
}

std::string Sessions::ending_of(const UserId& user, const SessionId& session) const {
  MutexLock lock(mutex_);
  const auto ended = ended_.find(session);
  return ended == ended_.end() || ended->second.user != user ? std::string() : sentence_of(ended->second.why);
}

Status Sessions::end(const UserId& user, const SessionId& session) {
  {
    MutexLock lock(mutex_);
    const Session* found = sessions_.find(session);
    if (found == nullptr || found->user != user) {
      const auto ended = ended_.find(session);
      if (ended != ended_.end() && ended->second.user == user) return {};
      return unknown_locked(user, session);
    }
    if (found->ending) return {};
  }
  TUFT_TRY(persistence_.available());
  if (begin_end(session, SessionEnd::kFinished)) go_on_ending(session);
  return {};
}

bool Sessions::end_idle(const SessionId& session) {
  if (session.empty() || !is_idle(session) || !begin_end(session, SessionEnd::kLimit)) return false;
  go_on_ending(session);
  return true;
}

bool Sessions::begin_end(const SessionId& id, SessionEnd why) {
  {
    MutexLock lock(mutex_);
    Session* found = sessions_.find(id);
    if (found == nullptr || found->ending) return false;
    Session& session = *found;
    const auto own = by_user_.find(session.user);
    own->second.erase(Created(session.created_at, id));
    if (own->second.empty()) by_user_.erase(own);
    by_silence_.erase(session.in_silence);
    if (!session.idempotency_key.empty()) by_idempotency_key_.erase(session.idempotency_key);
    note_end_locked(id, session, why);
    // Written under the lock, so that the store sees changes in their order.
    if (persistence_.enabled()) {
      // Without tags and metadata, which nobody reads any more: they can be long, and the lock is held.
      const CreateSession left{.sdk_version = session.request.sdk_version,
                               .project_id = session.request.project_id,
                               .idempotency_key = session.request.idempotency_key};
      const SessionRecord record{id, session.user, left, session.created_at, std::string(session_end_name(why))};
      persistence_.write(session.user, {persistence_.put(record)}, telemetry::current_context());
    }
  }
  active_.add(-1);
  metrics::tenants().sessions_expired.add(1, {{"reason", session_end_name(why)}});
  telemetry::log_info("session.expired", "session ended",
                      {{"tuft.session_id", id.str()}, {"tuft.reason", session_end_name(why)}});
  return true;
}

void Sessions::note_end_locked(const SessionId& id, Session& session, SessionEnd why) {
  session.ending = why;
  ending_.insert(id);
  ended_.insert_or_assign(id, Ended{session.user, why});
  ended_order_.push_back(id);
  if (ended_order_.size() <= kEndedMax) return;
  ended_.erase(ended_order_.front());
  ended_order_.pop_front();
}

void Sessions::go_on_ending(const SessionId& id) {
  UserId user;
  SessionEnd why = SessionEnd::kSilent;
  {
    MutexLock lock(mutex_);
    const Session* found = sessions_.find(id);
    if (found == nullptr || !found->ending) return;
    user = found->user;
    why = *found->ending;
  }
  if (close_ && !close_(user, id, why)) return;
  if (!remove(id)) return;
  usage_.audit({.action = AuditAction::kSessionEnded,
                .user = why == SessionEnd::kFinished ? user : UserId(),
                .owner = user,
                .session = id});
}

// Returns false if another thread has removed it.
bool Sessions::remove(const SessionId& session) {
  MutexLock lock(mutex_);
  ending_.erase(session);
  if (!sessions_.erase(session)) return false;
  if (persistence_.enabled()) persistence_.write({}, {persistence_.erase(session)}, telemetry::current_context());
  return true;
}

void Sessions::sweep() {
  const Nanos now = clock_.monotonic();
  const Nanos oldest = now - limits_.session_idle_seconds * kSecond;
  std::vector<SessionId> silent;
  std::vector<SessionId> ending;
  {
    MutexLock lock(mutex_);
    if (now < next_look_) return;
    next_look_ = now + kLookInterval;
    ending.assign(ending_.begin(), ending_.end());
    for (const SessionId& id : by_silence_) {
      if (sessions_.find(id)->seen > oldest) break;
      silent.push_back(id);
    }
  }
  for (const SessionId& id : ending) go_on_ending(id);
  if (silent.empty() || !persistence_.available().ok()) return;  // their checkpoints could not be recorded
  for (const SessionId& id : silent) {
    if (begin_end(id, SessionEnd::kSilent)) go_on_ending(id);
  }
}

}  // namespace tuft::control
