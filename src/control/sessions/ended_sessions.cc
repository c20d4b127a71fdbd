#include "control/sessions/ended_sessions.h"

#include "control/sessions/session_description.h"

namespace tuft::control {
namespace {

// The memory of a session without its texts, in all maps.
constexpr int64_t kEndedBytes = 600;

int64_t bytes_of(const EndedSession& session) {
  return kEndedBytes + static_cast<int64_t>(session.finish.detail.size() + session.project_id.size() +
                                            session.display_name.size() + memory_of(session.user_metadata));
}

}  // namespace

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

void EndedSessions::add(EndedSession session) {
  if (sessions_.contains(session.id)) return;
  OfUser& own = users_[session.user];
  own.bytes += bytes_of(session);
  own.in_order.emplace(next_++, session.id);
  own.by_creation.emplace(session.created_at, session.id);
  const SessionId id = session.id;
  sessions_.emplace(id, std::move(session));
  while (own.in_order.size() > per_user_max_ || own.bytes > kBytesPerUserMax) forget_oldest(own);
}

void EndedSessions::forget_oldest(OfUser& own) {
  const auto oldest = own.in_order.begin();
  const auto found = sessions_.find(oldest->second);
  own.bytes -= bytes_of(found->second);
  own.by_creation.erase(Created(found->second.created_at, found->first));
  own.in_order.erase(oldest);
  sessions_.erase(found);
}

const EndedSession* EndedSessions::find(const SessionId& id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second;
}

const EndedSession* EndedSessions::find(const UserId& user, const SessionId& id) const {
  const EndedSession* found = find(id);
  return found == nullptr || found->user != user ? nullptr : found;
}

const EndedSessions::NewestFirst& EndedSessions::of_user(const UserId& user) const {
  static const NewestFirst none;
  const auto found = users_.find(user);
  return found == users_.end() ? none : found->second.by_creation;
}

}  // namespace tuft::control
