// What users used and did: token counts by the hour, an audit of what happened to checkpoints and runs.
//
// Thread-safe. Recording costs a map lookup and never blocks. Counts are written to the store every few seconds and at
// the end, audit events at once; both come back with the server.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/types.h"

namespace tuft::control {

enum class UsageKind : uint8_t {
  kTraining,
  kSamplingPrefill,
  kSamplingPrefillCached,
  kSamplingOutput,
  kCheckpoint,
  kStorage,
};

inline constexpr Nanos kHour = 3600 * kSecond;

// One line of the bill: an hour of one session and base model.
struct UsageEvent {
  Nanos bucket_start = 0;  // wall clock, on the hour
  UserId user;
  SessionId session;  // empty: of none, or summed up over several
  RunId run;          // empty: sampling of a base model
  std::string base_model;
  std::string project_id;  // that the session had when it was last counted
  UsageKind kind = UsageKind::kTraining;
  int64_t count = 0;  // tokens, checkpoints, or for kStorage byte seconds
};

enum class AuditAction : uint8_t {
  kCheckpointSaved,
  kCheckpointLoaded,
  kCheckpointDeleted,
  kCheckpointPublished,
  kCheckpointUnpublished,
  kCheckpointTtlSet,
  kCheckpointExpired,
  kCheckpointArchived,
  kRunCreated,
  kRunUnloaded,
  kRunExpired,
  kSessionCreated,
  kSessionEnded,
};
std::string_view audit_action_name(AuditAction action);  // "checkpoint_saved", ...

// Something that is kept for those who ask later.
struct AuditEvent {
  AuditAction action = AuditAction::kCheckpointSaved;
  UserId user;        // who did it; empty: the server
  UserId owner = {};  // whose it is; empty: the same user's
  std::optional<SessionId> session = {};
  std::optional<RunId> run = {};
  std::optional<std::string> tinker_path = {};
  std::string purpose = {};  // "training", "sampling", "archive", ...; may be empty
  Nanos time = 0;            // wall clock; 0: now
};

class Usage {
 public:
  virtual ~Usage() = default;

  // Who used how much: from controllers, when an operation has succeeded. `keys` names session, run, base model.
  // Nothing where `count` is not positive.
  virtual void add(const UserId& user, const OperationKeys& keys, UsageKind kind, int64_t count) = 0;
  virtual void audit(AuditEvent event) = 0;

  // Of one user, [from, until), oldest first.
  virtual std::vector<UsageEvent> events(const UserId& user, Nanos from, Nanos until) const = 0;
  // What the user did, and what others did with what is theirs; oldest first. `checkpoints_only`: of checkpoints.
  virtual std::vector<AuditEvent> audit_events(const UserId& user, Nanos from, Nanos until,
                                               bool checkpoints_only) const = 0;
  // What the session's client attached to it; empty where it ended.
  virtual std::map<std::string, std::string> session_metadata(const SessionId& session) const = 0;
};

}  // namespace tuft::control
