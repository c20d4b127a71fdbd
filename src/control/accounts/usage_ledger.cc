#include "control/accounts/usage_ledger.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "metrics/tenants.h"
#include "telemetry/log.h"
#include "telemetry/trace.h"

namespace tuft::control {
namespace {

constexpr Nanos kDay = 24 * kHour;
constexpr Nanos kStorageInterval = 60 * kSecond;
constexpr size_t kEntriesOfPiece = 1'000;  // entries of a list that are read under one hold of the lock
// The longest window that a client can ask for. With a shorter retention the answer would lack days without saying so.
constexpr int kDaysMin = 15;

Nanos hour_of(Nanos wall) {
  return wall - wall % kHour;
}

bool is_of_checkpoint(AuditAction action) {
  return action <= AuditAction::kCheckpointArchived;
}

}  // namespace

UsageLedger::UsageLedger(const config::Limits& limits, const Clock& clock, Persistence& persistence)
    : kept_for_(std::max(limits.audit_retention_days, kDaysMin) * kDay),
      lines_max_(static_cast<size_t>(limits.usage_lines_per_user_max)),
      audit_max_(static_cast<size_t>(limits.audit_events_per_user_max)),
      clock_(clock),
      persistence_(persistence),
      written_(clock.monotonic()),
      minute_(clock.monotonic()) {}

void UsageLedger::restore(const std::vector<UsageRecord>& usage, std::vector<AuditRecord> audit) {
  std::vector<AuditPtr> pushed_out;
  {
    MutexLock lock(mutex_);
    for (const UsageRecord& record : usage) {
      const UsageEvent& event = record.event;
      LineKey key{event.user, event.session, event.run, event.base_model, event.kind};
      hours_[event.bucket_start][std::move(key)] = {record.number, event.count, event.project_id, false};
      ++lines_by_user_[event.user];
      next_line_ = std::max(next_line_, record.number + 1);
    }
    for (AuditRecord& record : audit) {
      next_audit_ = std::max(next_audit_, record.number + 1);
      for (AuditPtr& oldest : keep_locked(std::make_shared<const AuditRecord>(std::move(record)))) {
        pushed_out.push_back(std::move(oldest));
      }
    }
  }
  erase({}, pushed_out, {}, {});
  forget_old();
}

// At the user's limit, returns the line that sums up all sessions and runs, and sets `key` to it.
UsageLedger::Line& UsageLedger::line_locked(Nanos hour, LineKey& key) {
  Hour& lines = hours_[hour];
  auto found = lines.find(key);
  if (found != lines.end()) return found->second;
  size_t& count = lines_by_user_[std::get<UserId>(key)];
  if (count >= lines_max_) {
    metrics::tenants().usage_summed.add(1);
    std::get<SessionId>(key) = {};
    std::get<RunId>(key) = {};
    found = lines.find(key);
    if (found != lines.end()) return found->second;
  }
  ++count;
  Line& line = lines[key];
  line.number = next_line_++;
  return line;
}

void UsageLedger::add(const UserId& user, const OperationKeys& keys, UsageKind kind, int64_t count) {
  if (count <= 0) return;
  const Nanos hour = hour_of(clock_.wall());
  LineKey key{user, keys.session, keys.run, keys.base_model, kind};
  MutexLock lock(mutex_);
  Line& line = line_locked(hour, key);
  line.count += count;
  if (!std::exchange(line.changed, true)) changed_.emplace_back(hour, std::move(key));
}

std::vector<UsageLedger::AuditPtr> UsageLedger::keep_locked(const AuditPtr& record) {
  const AuditEvent& event = record->event;
  std::vector<AuditPtr> too_many;
  if (!event.user.empty()) {
    UserAudit& heard = audit_[event.user];
    if (event.action == AuditAction::kSessionCreated && event.session) heard.sessions.insert(*event.session);
    heard.own.insert(record);
    if (heard.own.size() > audit_max_) too_many.push_back(drop_oldest(heard, heard.own));
  }
  if (event.owner != event.user) {
    UserAudit& heard = audit_[event.owner];
    heard.by_others.insert(record);
    if (heard.by_others.size() > audit_max_) too_many.push_back(drop_oldest(heard, heard.by_others));
  }
  std::vector<AuditPtr> pushed_out;
  for (AuditPtr& oldest : too_many) {
    if (!is_kept_locked(oldest)) pushed_out.push_back(std::move(oldest));
  }
  return pushed_out;
}

UsageLedger::AuditPtr UsageLedger::drop_oldest(UserAudit& heard, AuditList& list) {
  AuditPtr oldest = *list.begin();
  const AuditEvent& event = oldest->event;
  if (&list == &heard.own && event.action == AuditAction::kSessionCreated && event.session) {
    heard.sessions.erase(*event.session);
  }
  list.erase(list.begin());
  return oldest;
}

bool UsageLedger::is_kept_locked(const AuditPtr& record) const {
  const auto own = audit_.find(record->event.user);
  if (own != audit_.end() && own->second.own.contains(record)) return true;
  const auto owner = audit_.find(record->event.owner);
  return owner != audit_.end() && owner->second.by_others.contains(record);
}

void UsageLedger::audit(AuditEvent event) {
  if (event.time == 0) event.time = clock_.wall();
  if (event.owner.empty()) event.owner = event.user;
  metrics::tenants().audit_events.add(1, {{"event", audit_action_name(event.action)}});
  AuditRecord record{.number = 0, .event = std::move(event)};
  AuditPtr kept;
  std::vector<AuditPtr> pushed_out;
  {
    MutexLock lock(mutex_);
    record.number = next_audit_++;
    kept = std::make_shared<const AuditRecord>(std::move(record));
    pushed_out = keep_locked(kept);
  }
  std::vector<store::Change> changes;
  if (persistence_.enabled()) changes.push_back(persistence_.put(*kept, kept_for_));
  telemetry::SpanContext trace = telemetry::current_context();
  if (trace.keys == 0 && kept->event.session)
    trace = telemetry::share(trace, {{"tuft.session_id", kept->event.session->str()}});
  erase(kept->event.user, pushed_out, std::move(changes), trace);
}

// Writes `changes`, and erases what was pushed out. The record of an act is in the trace of the request or operation
// that asked for it, and counts as a write of the user who acted: a loop of requests must not fill the server's memory
// while the store is slow.
void UsageLedger::erase(const UserId& user, const std::vector<AuditPtr>& pushed_out, std::vector<store::Change> changes,
                        const telemetry::SpanContext& trace) {
  if (!pushed_out.empty()) metrics::tenants().audit_dropped.add(static_cast<int64_t>(pushed_out.size()));
  if (!persistence_.enabled()) return;
  for (const AuditPtr& gone : pushed_out) changes.push_back({persistence_.put(*gone, kept_for_).key, std::nullopt});
  if (!changes.empty()) persistence_.write(user, std::move(changes), trace);
}

UsageEvent UsageLedger::event_of(Nanos hour, const LineKey& key, const Line& line) {
  const auto& [user, session, run, base_model, kind] = key;
  return {hour, user, session, run, base_model, line.project, kind, line.count};
}

bool UsageLedger::gather_lines(Nanos until, LinePosition& position, std::vector<UsageEvent>& events) const {
  const UserId user = std::get<UserId>(position.second);
  size_t count = 0;
  MutexLock lock(mutex_);
  for (auto hour = hours_.lower_bound(position.first); hour != hours_.end() && hour->first < until; ++hour) {
    auto line = hour->second.lower_bound(hour->first == position.first ? position.second : first_key(user));
    for (; line != hour->second.end() && std::get<UserId>(line->first) == user; ++line) {
      if (count++ == kEntriesOfPiece) {
        position = {hour->first, line->first};
        return true;
      }
      events.push_back(event_of(hour->first, line->first, line->second));
    }
  }
  return false;
}

std::vector<UsageEvent> UsageLedger::events(const UserId& user, Nanos from, Nanos until) const {
  std::vector<UsageEvent> events;
  LinePosition position(from, first_key(user));
  while (gather_lines(until, position, events)) {
  }
  std::map<SessionId, std::string> projects;
  for (UsageEvent& event : events) {
    if (event.session.empty()) continue;
    const auto [known, is_new] = projects.try_emplace(event.session);
    if (is_new) known->second = project_of(event.session);
    if (!known->second.empty()) event.project_id = known->second;
  }
  return events;
}

bool UsageLedger::gather_audit(const UserId& user, Nanos until, AuditPosition& position,
                               std::vector<AuditPtr>& found) const {
  found.clear();
  MutexLock lock(mutex_);
  const auto heard = audit_.find(user);
  if (heard == audit_.end()) return false;
  const UserAudit& lists = heard->second;
  auto own = lists.own.lower_bound(position);
  auto others = lists.by_others.lower_bound(position);
  while (found.size() < kEntriesOfPiece) {
    const bool has_own = own != lists.own.end() && (*own)->event.time < until;
    const bool has_others = others != lists.by_others.end() && (*others)->event.time < until;
    if (!has_own && !has_others) return false;
    auto& next = has_own && (!has_others || Earlier()(*own, *others)) ? own : others;
    position = after(position_of(**next));
    found.push_back(*next++);
  }
  return true;
}

AuditPage UsageLedger::audit_page(const UserId& user, const AuditQuery& query) const {
  AuditPage page;
  AuditPosition position(query.from, 0);
  if (query.after) position = std::max(position, after({query.after->time, query.after->number}));
  std::vector<AuditPtr> found;
  for (bool has_more = true; has_more;) {
    has_more = gather_audit(user, query.until, position, found);
    for (const AuditPtr& record : found) {
      if (query.checkpoints_only && !is_of_checkpoint(record->event.action)) continue;
      page.events.push_back(record->event);
      if (page.events.size() < query.limit) continue;
      page.next = AuditCursor{record->event.time, record->number};
      return page;
    }
  }
  return page;
}

std::string UsageLedger::project_of(const SessionId& session) const {
  if (session.empty() || !describe_session_) return {};
  auto facts = describe_session_(session);
  return facts ? std::move(facts->project) : std::string();
}

std::map<std::string, std::string> UsageLedger::session_metadata(const SessionId& session) const {
  if (!describe_session_) return {};
  auto facts = describe_session_(session);
  return facts ? std::move(facts->user_metadata) : std::map<std::string, std::string>();
}

bool UsageLedger::had_session(const UserId& user, const SessionId& session) const {
  MutexLock lock(mutex_);
  const auto heard = audit_.find(user);
  return heard != audit_.end() && heard->second.sessions.contains(session);
}

void UsageLedger::sweep() {
  const Nanos now = clock_.monotonic();
  // While the store is away, counts are summed up here instead of being queued.
  if (now - written_ >= kWriteInterval && persistence_.available().ok()) {
    written_ = now;
    flush();
  }
  if (now - minute_ < kStorageInterval) return;
  count_storage(now - minute_);
  minute_ = now;
  forget_old();
}

void UsageLedger::flush() {
  std::vector<std::pair<Nanos, LineKey>> changed;
  {
    MutexLock lock(mutex_);
    changed.swap(changed_);
  }
  if (changed.empty()) return;
  std::map<SessionId, std::string> projects;
  for (const auto& entry : changed) projects.try_emplace(std::get<SessionId>(entry.second));
  for (auto& [session, project] : projects) project = project_of(session);
  std::vector<store::Change> changes;
  {
    MutexLock lock(mutex_);
    for (const auto& [hour, key] : changed) {
      const auto lines = hours_.find(hour);
      if (lines == hours_.end()) continue;
      const auto found = lines->second.find(key);
      if (found == lines->second.end()) continue;
      Line& line = found->second;
      line.changed = false;
      if (const std::string& project = projects[std::get<SessionId>(key)]; !project.empty()) line.project = project;
      if (persistence_.enabled()) {
        changes.push_back(persistence_.put(UsageRecord{line.number, event_of(hour, key, line)}, kept_for_));
      }
    }
  }
  if (!changes.empty()) persistence_.write({}, std::move(changes), {});
}

void UsageLedger::count_storage(Nanos since) {
  if (!stored_bytes_) return;
  for (const auto& [user, bytes] : stored_bytes_()) add(user, {}, UsageKind::kStorage, bytes * (since / kSecond));
}

// The store drops its records by their time to live.
void UsageLedger::forget_old() {
  const Nanos oldest = clock_.wall() - kept_for_;
  MutexLock lock(mutex_);
  while (!hours_.empty() && hours_.begin()->first < oldest - kHour) {
    for (const auto& [key, line] : hours_.begin()->second) {
      const auto count = lines_by_user_.find(std::get<UserId>(key));
      if (--count->second == 0) lines_by_user_.erase(count);
    }
    hours_.erase(hours_.begin());
  }
  const auto trim = [oldest](UserAudit& heard, AuditList& list) {
    while (!list.empty() && (*list.begin())->event.time < oldest) drop_oldest(heard, list);
  };
  for (auto heard = audit_.begin(); heard != audit_.end();) {
    trim(heard->second, heard->second.own);
    trim(heard->second, heard->second.by_others);
    heard = heard->second.own.empty() && heard->second.by_others.empty() ? audit_.erase(heard) : std::next(heard);
  }
}

}  // namespace tuft::control
