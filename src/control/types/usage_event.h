// Usage events (what users consumed) and audit events (what users did).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "control/types/types.h"

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

// The use of one base model and kind by one session within one hour.
struct UsageEvent {
  Nanos bucket_start = 0;  // wall clock, on the hour
  UserId user;
  SessionId session;  // empty: none, or the sum over several
  RunId run;          // empty: sampling of a base model
  std::string base_model;
  std::string project_id;  // of the session, when it was last counted
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

// An action that is recorded for later questions.
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

}  // namespace tuft::control
