// The usage of each user by the hour (tokens, checkpoints, storage), and an audit of what happened to checkpoints, runs
// and sessions.
//
// Thread-safe. Counting costs a map lookup and never blocks. With persistence, counts are written every few seconds and
// at the end, audit events at once, and both are restored after a restart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/types/usage_event.h"

namespace tuft::control {

// The place of an event in the audit of a user.
struct AuditCursor {
  Nanos time = 0;
  uint64_t number = 0;
};

struct AuditQuery {
  Nanos from = 0;  // wall clock
  Nanos until = 0;
  bool checkpoints_only = false;
  std::optional<AuditCursor> after = {};  // `next` of the page before; none: the first page
  size_t limit = 1'000;                   // >= 1
};

struct AuditPage {
  std::vector<AuditEvent> events;   // oldest first
  std::optional<AuditCursor> next;  // none: this is the last page. Otherwise the next one may be empty
};

class Usage {
 public:
  virtual ~Usage() = default;

  // Adds `count` to what the user has used; called when an operation has succeeded. `keys` names the session, the run
  // and the base model. Does nothing unless `count` is positive.
  virtual void add(const UserId& user, const OperationKeys& keys, UsageKind kind, int64_t count) = 0;
  virtual void audit(AuditEvent event) = 0;

  // Returns the counts of one user in [from, until), oldest first.
  virtual std::vector<UsageEvent> events(const UserId& user, Nanos from, Nanos until) const = 0;
  // Returns a page of what the user did, and of what others did with the user's things, in [from, until). The newest
  // limits.audit_events_per_user_max of each are known.
  virtual AuditPage audit_page(const UserId& user, const AuditQuery& query) const = 0;
  // Returns the metadata of the session's client; empty if the session has ended.
  virtual std::map<std::string, std::string> session_metadata(const SessionId& session) const = 0;
};

}  // namespace tuft::control
