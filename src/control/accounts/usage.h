// The usage of each user by the hour (tokens, checkpoints, storage), and an audit of what happened to checkpoints, runs
// and sessions.
//
// Thread-safe. Counting costs a map lookup and never blocks. With persistence, counts are written every few seconds and
// at the end, audit events at once, and both are restored after a restart.
#pragma once

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

class Usage {
 public:
  virtual ~Usage() = default;

  // Adds `count` to what the user has used; called when an operation has succeeded. `keys` names the session, the run
  // and the base model. Does nothing unless `count` is positive.
  virtual void add(const UserId& user, const OperationKeys& keys, UsageKind kind, int64_t count) = 0;
  virtual void audit(AuditEvent event) = 0;

  // Returns the counts of one user in [from, until), oldest first.
  virtual std::vector<UsageEvent> events(const UserId& user, Nanos from, Nanos until) const = 0;
  // Returns what the user did, and what others did with the user's things, oldest first.
  virtual std::vector<AuditEvent> audit_events(const UserId& user, Nanos from, Nanos until,
                                               bool checkpoints_only) const = 0;
  // Returns the metadata of the session's client; empty if the session has ended.
  virtual std::map<std::string, std::string> session_metadata(const SessionId& session) const = 0;
};

}  // namespace tuft::control
