#include "control/sessions/sessions.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "control/accounts/quota.h"
#include "control/sessions/session_description.h"
#include "control/types/checkpoint.h"
#include "metrics/tenants.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace tuft::control {

namespace {

// The refusal while the store is behind; no session that ends makes room.
constexpr std::string_view kUnwrittenReason = "session_records_unwritten";
constexpr size_t kLoggedVersionBytes = 64;

// Returns the beginning of a text from a client, with '?' for everything that is not printable.
std::string printable(std::string_view text) {
  std::string line(text.substr(0, kLoggedVersionBytes));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return line;
}

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
      ended_(limits.ended_sessions_per_user_max),
      active_(persistence.is_view() ? telemetry::BoundCounter() : metrics::tenants().sessions_active.with({})) {
  for (const SessionEnd why : {SessionEnd::kSilent, SessionEnd::kLimit, SessionEnd::kFinished}) {
    metrics::tenants().sessions_expired.with({{"reason", session_end_name(why)}});
  }
}

void Sessions::restore(const SessionRecord& record) {
  const CreateSession& request = record.request;
  const std::string key = request.idempotency_key.empty() ? "" : record.user.str() + '\n' + request.idempotency_key;
  Session restored{record.user, request, record.created_at, clock_.monotonic(), key};
  restored.memory = memory_->open(record.user.str());
  restored.memory.grow_to(memory_of(request), {});  // of an older server, which may have allowed more
  {
    MutexLock lock(mutex_);
    const auto [session, is_new] = sessions_.emplace(record.id, std::move(restored));
    if (!is_new) return;
    if (const auto why = session_end_of(record.ending)) {
      return note_end_locked(record.id, *session, *why, record.finish);
    }
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
  if (session.ending) return;
  std::list<SessionId>& from = session.is_silent ? silent_long_ : by_silence_;
  by_silence_.splice(by_silence_.end(), from, session.in_silence);
  session.is_silent = false;
}

Result<SessionId> Sessions::create(const UserId& user, const CreateSession& request) {
  TUFT_TRY(check_description(request));
  const std::string key = request.idempotency_key.empty() ? "" : user.str() + '\n' + request.idempotency_key;
  auto created = add(user, request, key);
  const bool at_limit = !created.ok() && created.error().code == ErrorCode::kResourceExhausted &&
                        created.error().reason != kUnwrittenReason;
  if (!at_limit || !end_idle(longest_idle(user))) return created;
  return add(user, request, key);
}

// Made before the lock is taken, because it costs as much as the record is long.
Result<Sessions::Unwritten> Sessions::take_unwritten(const SessionRecord& record) const {
  if (!persistence_.enabled()) return Unwritten();
  Unwritten unwritten{{persistence_.put(record)},
                      std::make_shared<ByteAccount::Hold>(unwritten_->open(record.user.str()))};
  const auto bytes = static_cast<int64_t>(unwritten.changes.front().value->size());
  if (unwritten.bytes->grow_to(bytes, {.each = kUnwrittenBytesMax}) == ByteAccount::Answer::kTaken) return unwritten;
  return Error{ErrorCode::kResourceExhausted,
               "more than " + std::to_string(kUnwrittenBytesMax) +
                   " bytes of your sessions wait to be stored; try again in a moment",
               std::string(kUnwrittenReason)};
}

void Sessions::write(const UserId& user, const SessionId& id, Unwritten record) {
  if (record.changes.empty()) return;
  persistence_.write(user, std::move(record.changes),
                     telemetry::share(telemetry::current_context(), {{"tuft.session_id", id.str()}}),
                     [bytes = std::move(record.bytes)] { bytes->shrink_to(0); });
}

Status Sessions::check_limits_locked(const UserId& user, ByteAccount::Hold& memory, int64_t bytes) const {
  const auto own = by_user_.find(user);
  const size_t count = own == by_user_.end() ? 0 : own->second.size();
  if (count >= static_cast<size_t>(limits_.sessions_per_user_max)) {
    return over_quota(Quota::kSessions, "you have " + std::to_string(count) + " sessions",
                      "end some clients (a session that was silent for a minute makes room)");
  }
  const int64_t most = limits_.session_bytes_per_user_max;
  if (memory.grow_to(bytes, {.each = most}) == ByteAccount::Answer::kTaken) return {};
  return over_quota(Quota::kSessionBytes,
                    "your sessions take " + std::to_string(memory_->held_by(user.str())) +
                        " bytes of memory with their tags and user_metadata, this one takes " + std::to_string(bytes) +
                        " more, and " + std::to_string(most) + " are allowed",
                    "send less user_metadata, or end some clients");
}

Result<SessionId> Sessions::add(const UserId& user, const CreateSession& request, const std::string& key) {
  SessionId id(random_uuid());
  const Nanos now = clock_.monotonic();
  const std::string created_at = iso_time(clock_.wall());
  TUFT_ASSIGN(Unwritten record, take_unwritten(SessionRecord{id, user, request, created_at, {}, {}}));
  ByteAccount::Hold memory = memory_->open(user.str());
  {
    MutexLock lock(mutex_);
    if (const SessionId* known = by_idempotency_key_.find(key); known != nullptr) return *known;
    TUFT_TRY(persistence_.available(user));
    TUFT_TRY(check_limits_locked(user, memory, memory_of(request)));
    Session session{user, request, created_at, now, key};
    session.memory = std::move(memory);
    begin_locked(id, *sessions_.emplace(id, std::move(session)).first);
    // Written under the lock, so that the answer to a repetition waits for this write, too.
    write(user, id, std::move(record));
  }
  active_.add(1);
  usage_.audit({.action = AuditAction::kSessionCreated, .user = user, .session = id});
  telemetry::log_info(
      "session.created", "session created",
      {{"tuft.session_id", id.str()}, {"tuft.user", user.str()}, {"tuft.sdk_version", printable(request.sdk_version)}});
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

std::optional<Sessions::Life> Sessions::life_of(const UserId& user, const SessionId& session) const {
  MutexLock lock(mutex_);
  const Session* found = sessions_.find(session);
  if (found == nullptr || found->user != user || found->ending) return std::nullopt;
  return Life{found->seen, found->request.sdk_version};
}

Sessions::Use Sessions::use_of(const UserId& user) const {
  MutexLock lock(mutex_);
  const auto own = by_user_.find(user);
  const int64_t count = own == by_user_.end() ? 0 : static_cast<int64_t>(own->second.size());
  return {count, memory_->held_by(user.str())};
}

UserId Sessions::owner_of(const SessionId& session) const {
  MutexLock lock(mutex_);
  if (const Session* found = sessions_.find(session)) return found->user;
  const EndedSession* const ended = ended_.find(session);
  return ended == nullptr ? UserId() : ended->user;
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

std::string Sessions::display_name_of(const SessionId& session) const {
  MutexLock lock(mutex_);
  const Session* found = sessions_.find(session);
  return found == nullptr ? std::string() : found->request.display_name;
}

std::optional<std::string> Sessions::project_of(const SessionId& session) const {
  MutexLock lock(mutex_);
  const Session* found = sessions_.find(session);
  if (found == nullptr) return std::nullopt;
  return found->request.project_id;
}

Result<Sessions::Session*> Sessions::find_own_locked(const UserId& user, const SessionId& id) {
  Session* found = sessions_.find(id);
  if (found != nullptr && found->user == user && !found->ending) return found;
  return not_found("unknown session: it does not exist or has ended", "session_not_found");
}

// All else in the record of a session that does not end stays as it is, so the record can be made without the lock,
// which every request takes. Making it takes milliseconds if the metadata has many characters to be escaped.
Status Sessions::set_project(const UserId& user, const SessionId& id, const std::string& project) {
  TUFT_TRY(check_project(project));
  TUFT_TRY(persistence_.available(user));
  SessionRecord record{id, user, {}, {}, {}, {}};
  {
    MutexLock lock(mutex_);
    TUFT_ASSIGN(const Session* session, find_own_locked(user, id));
    record.request = session->request;
    record.created_at = session->created_at;
  }
  record.request.project_id = project;
  TUFT_ASSIGN(Unwritten unwritten, take_unwritten(record));
  MutexLock lock(mutex_);
  TUFT_ASSIGN(Session* const session, find_own_locked(user, id));
  // Written under the lock, so that the store sees changes in order, and none of a session that was removed.
  write(user, id, std::move(unwritten));
  session->request.project_id = std::move(record.request.project_id);
  return {};
}

}  // namespace tuft::control
