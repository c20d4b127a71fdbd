// Usage kept in memory and in the persistent store.
//
// It is bounded by time (limits.audit_retention_days) and, for each user, by number: further token counts are summed up
// without session and run (limits.usage_lines_per_user_max), further audit events push out the oldest, in the store,
// too (limits.audit_events_per_user_max). When the server is killed, token counts since the last write (at most
// kWriteInterval) are lost; nothing is ever counted twice.
//
// A call costs what it returns and the logarithm of what exists. Long lists are read in pieces, so that other calls do
// not wait for them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "config/config.h"
#include "control/accounts/usage.h"
#include "control/persistence/persistence.h"
#include "control/persistence/usage_records.h"

namespace tuft::control {

// It has more than 25 methods: those of the port, and two of each kind for the two records, token counts and audit
// events, which share limits and writes.
class UsageLedger final : public Usage {
 public:
  static constexpr Nanos kWriteInterval = 5 * kSecond;

  UsageLedger(const config::Limits& limits, const Clock& clock, Persistence& persistence);

  // At the start: the records of a former server process.
  void restore(const std::vector<UsageRecord>& usage, std::vector<AuditRecord> audit);
  // Returns the current facts of a session; nothing if it has ended. Called without a lock. Set it before add().
  struct SessionFacts {
    std::string project;
    std::map<std::string, std::string> user_metadata;
  };
  using DescribeSession = std::function<std::optional<SessionFacts>(const SessionId&)>;
  void set_describe_session(DescribeSession describe) { describe_session_ = std::move(describe); }

  // Returns the bytes that the checkpoints of each user take now. Storage is counted from it while the server runs.
  // Called without a lock.
  using StoredBytes = std::function<std::unordered_map<UserId, int64_t>()>;
  void set_stored_bytes(StoredBytes stored) { stored_bytes_ = std::move(stored); }

  void add(const UserId& user, const OperationKeys& keys, UsageKind kind, int64_t count) override;
  void audit(AuditEvent event) override;
  std::vector<UsageEvent> events(const UserId& user, Nanos from, Nanos until) const override;
  AuditPage audit_page(const UserId& user, const AuditQuery& query) const override;
  std::map<std::string, std::string> session_metadata(const SessionId& session) const override;

  // Returns true if the audit remembers that the user created this session.
  bool had_session(const UserId& user, const SessionId& session) const;

  // Writes what is due and drops what is too old. Call it about every 250 ms. Requires: no other thread is in this or
  // in flush(), so that the newest count of a line is written last.
  void sweep();
  // Writes the counts that have changed.
  void flush();

 private:
  using LineKey = std::tuple<UserId, SessionId, RunId, std::string, UsageKind>;
  struct Line {
    uint64_t number = 0;
    int64_t count = 0;
    std::string project;
    bool changed = false;
  };
  using Hour = std::map<LineKey, Line>;
  using AuditPtr = std::shared_ptr<const AuditRecord>;
  using AuditPosition = std::pair<Nanos, uint64_t>;  // time and number of an event
  static AuditPosition position_of(const AuditRecord& record) { return {record.event.time, record.number}; }
  static AuditPosition after(const AuditPosition& position) { return {position.first, position.second + 1}; }
  struct Earlier {
    using is_transparent = void;
    bool operator()(const AuditPtr& a, const AuditPtr& b) const { return position_of(*a) < position_of(*b); }
    bool operator()(const AuditPtr& a, const AuditPosition& b) const { return position_of(*a) < b; }
    bool operator()(const AuditPosition& a, const AuditPtr& b) const { return a < position_of(*b); }
  };
  using AuditList = std::set<AuditPtr, Earlier>;
  struct UserAudit {
    AuditList own, by_others;
    std::unordered_set<SessionId> sessions;  // whose creation is in `own`
  };

  Line& line_locked(Nanos hour, LineKey& key) TUFT_REQUIRES(mutex_);
  // Returns the events that were pushed out and are in no list any more.
  std::vector<AuditPtr> keep_locked(const AuditPtr& record) TUFT_REQUIRES(mutex_);
  static AuditPtr drop_oldest(UserAudit& heard, AuditList& list);
  bool is_kept_locked(const AuditPtr& record) const TUFT_REQUIRES(mutex_);
  // Sets `found` to the next events of both lists from `position` on, oldest first, and advances `position`. Returns
  // false after the last event before `until`.
  bool gather_audit(const UserId& user, Nanos until, AuditPosition& position, std::vector<AuditPtr>& found) const;
  void erase(const UserId& user, const std::vector<AuditPtr>& pushed_out, std::vector<store::Change> changes,
             const telemetry::SpanContext& trace);
  // The same for the lines of the user in `position`.
  using LinePosition = std::pair<Nanos, LineKey>;
  bool gather_lines(Nanos until, LinePosition& position, std::vector<UsageEvent>& events) const;
  // Returns a key before all lines of the user.
  static LineKey first_key(const UserId& user) { return {user, SessionId(), RunId(), "", UsageKind::kTraining}; }
  void forget_old();
  void count_storage(Nanos since);
  std::string project_of(const SessionId& session) const;
  static UsageEvent event_of(Nanos hour, const LineKey& key, const Line& line);

  const Nanos kept_for_;
  const size_t lines_max_;  // of a user
  const size_t audit_max_;  // of a user, each of what the user did and of what others did
  const Clock& clock_;
  Persistence& persistence_;
  DescribeSession describe_session_;
  StoredBytes stored_bytes_;

  mutable Mutex mutex_;
  std::map<Nanos, Hour> hours_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, size_t> lines_by_user_ TUFT_GUARDED_BY(mutex_);
  std::vector<std::pair<Nanos, LineKey>> changed_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, UserAudit> audit_ TUFT_GUARDED_BY(mutex_);
  uint64_t next_line_ TUFT_GUARDED_BY(mutex_) = 1;
  uint64_t next_audit_ TUFT_GUARDED_BY(mutex_) = 1;

  // Used by the thread that sweeps; monotonic.
  Nanos written_;
  Nanos minute_;  // when storage was counted and old events were dropped
};

}  // namespace tuft::control
