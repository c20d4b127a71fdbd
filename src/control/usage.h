// What users used and did: token counts by the hour, an audit of what happened to checkpoints and runs.
//
// Thread-safe. Recording costs a map lookup and never blocks; counts are written to the store in the background and
// come back with the server.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/types.h"

namespace tuft::control {

enum class UsageKind : uint8_t { kTraining, kSamplingPrefill, kSamplingPrefillCached, kSamplingOutput, kCheckpoint };

// One line of the bill: an hour of one session and base model.
struct UsageEvent {
  Nanos bucket_start = 0;  // wall clock, on the hour
  UserId user;
  SessionId session;
  RunId run;  // empty: sampling of a base model
  std::string base_model;
  std::string project_id;
  UsageKind kind = UsageKind::kTraining;
  int64_t count = 0;  // tokens, or checkpoints
};

// Something that is kept for those who ask later.
struct AuditEvent {
  Nanos time = 0;     // wall clock
  std::string event;  // "checkpoint_saved", "checkpoint_loaded", "checkpoint_deleted", "checkpoint_published", ...
  UserId user;        // who did it
  UserId owner;       // whose it is
  std::optional<RunId> run;
  std::optional<std::string> tinker_path;
  std::string purpose;  // "training", "sampling", "archive"; may be empty
};

class Usage {
 public:
  virtual ~Usage() = default;

  // Who used how much: from controllers, when an operation has succeeded. `keys` names session, run, base model.
  virtual void add(const UserId& user, const OperationKeys& keys, UsageKind kind, int64_t count) = 0;
  virtual void audit(AuditEvent event) = 0;

  // Of one user, [from, until), oldest first.
  virtual std::vector<UsageEvent> events(const UserId& user, Nanos from, Nanos until) const = 0;
  // What the user did, and what others did with what is theirs; oldest first. `checkpoints_only`: of checkpoints.
  virtual std::vector<AuditEvent> audit_events(const UserId& user, Nanos from, Nanos until,
                                               bool checkpoints_only) const = 0;
};

}  // namespace tuft::control
