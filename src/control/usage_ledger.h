// Usage, in memory and in the persistent store.
//
// Bounded by time (limits.audit_retention_days) and for each user by count: what is over it is summed up without
// session and run (token counts), or pushes out the oldest (audit events). Token counts that were added after the last
// write, kWriteInterval ago at most, are lost when the server is killed; nothing is ever counted twice.
//
// Each call costs what it gives and the logarithm of what there is, and long lists are read in pieces, so that nobody
// waits for them. An audit event takes a tree node of its user, and another of the owner where that is not the same.
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
#include "control/persistence.h"
#include "control/usage.h"
#include "control/usage_records.h"
#include "telemetry/metrics.h"

namespace tuft::control {

class UsageLedger final : public Usage {
 public:
  static constexpr Nanos kWriteInterval = 5 * kSecond;
  static constexpr size_t kLinesPerUserMax = 50'000;
  static constexpr size_t kAuditPerUserMax = 50'000;  // of what the user did, and of what others did

  UsageLedger(const config::Limits& limits, const Clock& clock, Persistence& persistence);

  // At the start: what a former life of the server counted.
  void restore(const std::vector<UsageRecord>& usage, std::vector<AuditRecord> audit);
  // What a session is just now; nothing where it ended. Called without a lock. Set it before the first add().
  struct SessionFacts {
    std::string project;
    std::map<std::string, std::string> user_metadata;
  };
  using DescribeSession = std::function<std::optional<SessionFacts>(const SessionId&)>;
  void set_describe_session(DescribeSession describe) { describe_session_ = std::move(describe); }

  // The bytes that users' checkpoints take just now: what storage is counted from, while the server runs. Called
  // without a lock.
  using StoredBytes = std::function<std::unordered_map<UserId, int64_t>()>;
  void set_stored_bytes(StoredBytes stored) { stored_bytes_ = std::move(stored); }

  void add(const UserId& user, const OperationKeys& keys, UsageKind kind, int64_t count) override;
  void audit(AuditEvent event) override;
  std::vector<UsageEvent> events(const UserId& user, Nanos from, Nanos until) const override;
  std::vector<AuditEvent> audit_events(const UserId& user, Nanos from, Nanos until,
                                       bool checkpoints_only) const override;
  std::map<std::string, std::string> session_metadata(const SessionId& session) const override;

  // Whether the user created this session, as far as the audit remembers.
  bool had_session(const UserId& user, const SessionId& session) const;

  // Writes what is due and forgets what is too old. Call it about every 250 ms; one caller of this and flush() at a
  // time, so that of each line the newest count is written last.
  void sweep();
  // Writes what was counted since.
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
  using AuditPlace = std::pair<Nanos, uint64_t>;  // its time and number
  static AuditPlace place_of(const AuditRecord& record) { return {record.event.time, record.number}; }
  struct Earlier {
    using is_transparent = void;
    bool operator()(const AuditPtr& a, const AuditPtr& b) const { return place_of(*a) < place_of(*b); }
    bool operator()(const AuditPtr& a, const AuditPlace& b) const { return place_of(*a) < b; }
    bool operator()(const AuditPlace& a, const AuditPtr& b) const { return a < place_of(*b); }
  };
  using AuditList = std::set<AuditPtr, Earlier>;
  struct Heard {
    AuditList own, by_others;
    std::unordered_set<SessionId> sessions;  // whose creation is in `own`
  };

  Line& line_locked(Nanos hour, LineKey& key) TUFT_REQUIRES(mutex_);
  // Gives what it pushed out, where nobody's list holds it any more.
  std::vector<AuditPtr> keep_locked(const AuditPtr& record) TUFT_REQUIRES(mutex_);
  static AuditPtr drop_oldest(Heard& heard, AuditList& list);
  bool is_kept_locked(const AuditPtr& record) const TUFT_REQUIRES(mutex_);
  // The next of the list from `place` on, a piece of them; moves `place`. False: those were the last before `until`.
  bool gather_audit(const UserId& user, AuditList Heard::*list, Nanos until, AuditPlace& place,
                    std::vector<AuditPtr>& found) const;
  // The same of the lines of the user that `place` names.
  using LinePlace = std::pair<Nanos, LineKey>;
  bool gather_lines(Nanos until, LinePlace& place, std::vector<UsageEvent>& events) const;
  // Before all lines of the user.
  static LineKey first_key(const UserId& user) { return {user, SessionId(), RunId(), "", UsageKind::kTraining}; }
  void forget_old();
  void count_storage(Nanos since);
  std::string project_of(const SessionId& session) const;
  static UsageEvent event_of(Nanos hour, const LineKey& key, const Line& line);

  const Nanos kept_for_;
  const Clock& clock_;
  Persistence& persistence_;
  DescribeSession describe_session_;
  StoredBytes stored_bytes_;

  mutable Mutex mutex_;
  std::map<Nanos, Hour> hours_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, size_t> lines_by_user_ TUFT_GUARDED_BY(mutex_);
  std::vector<std::pair<Nanos, LineKey>> changed_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, Heard> audit_ TUFT_GUARDED_BY(mutex_);
  uint64_t next_line_ TUFT_GUARDED_BY(mutex_) = 1;
  uint64_t next_audit_ TUFT_GUARDED_BY(mutex_) = 1;

  // Of whoever sweeps; monotonic.
  Nanos written_;
  Nanos minute_;  // when storage was counted last, and old things forgotten
};

}  // namespace tuft::control
