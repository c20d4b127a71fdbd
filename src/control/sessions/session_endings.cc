// How sessions end.
#include <algorithm>
#include <utility>

#include "control/sessions/session_description.h"
#include "control/sessions/sessions.h"
#include "metrics/tenants.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace tuft::control {
namespace {

telemetry::SpanContext trace_of(const SessionId& session) {
  return telemetry::share(telemetry::current_context(), {{"tuft.session_id", session.str()}});
}

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

std::string Sessions::sentence_of(const EndedSession& ended) const {
  switch (ended.why) {
    case SessionEnd::kSilent:
      return "its session ended: nothing was heard of it for " + std::to_string(limits_.session_idle_seconds) +
             " s (limits.session_idle_seconds)";
    case SessionEnd::kLimit:
      return "its session ended: it was silent for " + std::to_string(idle_after() / kSecond) +
             " s, and its user was at a limit";
    case SessionEnd::kFinished:
      return "its session ended: its client finished it (" + std::string(finish_reason_name(ended.finish.reason)) + ")";
  }
  return {};
}

// Only the user of a session learns how it ended.
Error Sessions::unknown_locked(const UserId& user, const SessionId& session) const {
  if (const EndedSession* ended = ended_.find(user, session)) {
    return not_found("this session has ended; " + sentence_of(*ended) + ". Create a new one", "session_ended");
  }
  return not_found("unknown session: create one first; sessions outlive the server only with persistence",
                   "session_not_found");
}

std::string Sessions::ending_of(const UserId& user, const SessionId& session) const {
  MutexLock lock(mutex_);
  const EndedSession* ended = ended_.find(user, session);
  return ended == nullptr ? std::string() : sentence_of(*ended);
}

Status Sessions::end(const UserId& user, const SessionId& session, const SessionFinish& finish) {
  TUFT_TRY(check_finish(finish));
  {
    MutexLock lock(mutex_);
    const Session* found = sessions_.find(session);
    if (found == nullptr || found->user != user) {
      return ended_.find(user, session) != nullptr ? Status() : unknown_locked(user, session);
    }
    if (found->ending) return {};
  }
  TUFT_TRY(persistence_.available());
  if (begin_end(session, SessionEnd::kFinished, finish)) go_on_ending(session);
  return {};
}

bool Sessions::end_idle(const SessionId& session) {
  if (session.empty() || !is_idle(session) || !begin_end(session, SessionEnd::kLimit)) return false;
  go_on_ending(session);
  return true;
}

bool Sessions::begin_end(const SessionId& id, SessionEnd why, const SessionFinish& finish) {
  {
    MutexLock lock(mutex_);
    Session* found = sessions_.find(id);
    if (found == nullptr || found->ending) return false;
    Session& session = *found;
    const auto own = by_user_.find(session.user);
    own->second.erase(Created(session.created_at, id));
    if (own->second.empty()) by_user_.erase(own);
    (session.is_silent ? silent_long_ : by_silence_).erase(session.in_silence);
    if (!session.idempotency_key.empty()) by_idempotency_key_.erase(session.idempotency_key);
    // Written under the lock, so that the store sees changes in their order.
    if (persistence_.enabled()) {
      // Without tags and metadata, which nobody reads any more: they can be long, and the lock is held.
      const CreateSession left{.sdk_version = session.request.sdk_version,
                               .project_id = session.request.project_id,
                               .idempotency_key = session.request.idempotency_key,
                               .display_name = session.request.display_name};
      const SessionRecord record{id,    session.user, left, session.created_at, std::string(session_end_name(why)),
                                 finish};
      persistence_.write(session.user, {persistence_.put(record)}, trace_of(id));
    }
    note_end_locked(id, session, why, finish);
  }
  active_.add(-1);
  metrics::tenants().sessions_expired.add(1, {{"reason", session_end_name(why)}});
  telemetry::log_info(
      "session.expired", "session ended",
      {{"tuft.session_id", id.str()},
       {"tuft.reason", session_end_name(why)},
       {"tuft.finish_reason", why == SessionEnd::kFinished ? finish_reason_name(finish.reason) : "none"}});
  return true;
}

// Moves what can be long, because the lock is held. What is left is small, and stays as long as the session has runs.
void Sessions::note_end_locked(const SessionId& id, Session& session, SessionEnd why, const SessionFinish& finish) {
  session.ending = why;
  ending_.insert(id);
  ended_.add({.id = id,
              .user = session.user,
              .why = why,
              .finish = finish,
              .created_at = session.created_at,
              .project_id = session.request.project_id,
              .display_name = session.request.display_name,
              .user_metadata = std::move(session.request.user_metadata)});
  session.request.user_metadata.clear();
  session.request.tags.clear();
  session.memory = {};
}

void Sessions::go_on_ending(const SessionId& id) {
  UserId user;
  SessionEnd why = SessionEnd::kSilent;
  std::string purpose;
  {
    MutexLock lock(mutex_);
    const Session* found = sessions_.find(id);
    if (found == nullptr || !found->ending) return;
    user = found->user;
    why = *found->ending;
    const EndedSession* ended = ended_.find(id);
    if (why == SessionEnd::kFinished && ended != nullptr) purpose = finish_reason_name(ended->finish.reason);
  }
  if (close_ && !close_(user, id, why)) return;
  if (!remove(id)) return;
  usage_.audit({.action = AuditAction::kSessionEnded,
                .user = why == SessionEnd::kFinished ? user : UserId(),
                .owner = user,
                .session = id,
                .purpose = purpose});
}

// Returns false if another thread has removed it.
bool Sessions::remove(const SessionId& session) {
  MutexLock lock(mutex_);
  ending_.erase(session);
  if (!sessions_.erase(session)) return false;
  if (persistence_.enabled()) persistence_.write({}, {persistence_.erase(session)}, trace_of(session));
  return true;
}

// Returns the sessions that are silent for long enough since the last call.
std::vector<SessionId> Sessions::take_silent_locked(Nanos now) {
  const Nanos oldest = now - limits_.sampling_silence_seconds * kSecond;
  std::vector<SessionId> silent;
  while (!by_silence_.empty()) {
    Session& session = *sessions_.find(by_silence_.front());
    if (session.seen > oldest) break;
    silent.push_back(by_silence_.front());
    silent_long_.splice(silent_long_.end(), by_silence_, session.in_silence);
    session.is_silent = true;
  }
  return silent;
}

std::vector<SessionId> Sessions::to_end_locked(Nanos now) const {
  const Nanos oldest = now - limits_.session_idle_seconds * kSecond;
  std::vector<SessionId> ends;
  for (const std::list<SessionId>* list : {&silent_long_, &by_silence_}) {
    for (const SessionId& id : *list) {
      if (sessions_.find(id)->seen > oldest) break;
      ends.push_back(id);
    }
  }
  return ends;
}

void Sessions::sweep() {
  const Nanos now = clock_.monotonic();
  std::vector<SessionId> silent;
  std::vector<SessionId> ends;
  std::vector<SessionId> ending;
  {
    MutexLock lock(mutex_);
    if (now < next_look_) return;
    next_look_ = now + kLookInterval;
    ending.assign(ending_.begin(), ending_.end());
    silent = take_silent_locked(now);
    ends = to_end_locked(now);
  }
  if (silent_) std::for_each(silent.begin(), silent.end(), silent_);
  for (const SessionId& id : ending) go_on_ending(id);
  if (ends.empty() || !persistence_.available().ok()) return;  // their checkpoints could not be recorded
  for (const SessionId& id : ends) {
    if (begin_end(id, SessionEnd::kSilent)) go_on_ending(id);
  }
}

}  // namespace tuft::control
