// Ends the runs of sessions that end: operations that were not begun are cancelled, a run that has changed is saved
// (limits.save_before_expiry; the checkpoint expires after limits.expired_checkpoint_ttl_seconds), its adapter is
// removed from the worker, and the run is gone.
//
// Saving and removing are operations like those of clients, so that they have their turn, their record and their trace.
// A step that fails is tried again after 10 s, three times at most, and not at all if that cannot help, for instance
// because the user's checkpoints are at their limit; then the next step follows at once. Until the run is gone it
// counts against limits.runs_per_user_max.
#pragma once

#include "base/clock.h"
#include "config/config.h"
#include "control/persistence/persistence.h"
#include "control/sessions/sessions.h"
#include "control/training/run.h"
#include "control/training/run_executor.h"
#include "control/training/run_table.h"

namespace tuft::control {

// Thread-safe.
class RunExpiry {
 public:
  struct Parts {
    const config::Limits& limits;
    const Clock& clock;
    const Sessions& sessions;
    Persistence& persistence;
    RunTable& runs;
    RunExecutor& executor;
  };
  explicit RunExpiry(const Parts& parts) : parts_(parts) {}

  // The session ends: goes on with the end of its runs. Returns true once it has no runs any more; call it again until
  // then.
  bool close_session(const UserId& user, const SessionId& session, SessionEnd why);
  // Begins to end a restored run if its session does not exist any more.
  void end_without_session(const RunPtr& run);
  // Takes the next step if the run ends and none of its operations is under way.
  void go_on(const RunPtr& run);

 private:
  void begin(const RunPtr& run, SessionEnd why);
  void submit(const RunPtr& run, OperationType type, RunOperation::Payload payload);
  void drop(const RunPtr& run);

  const Parts parts_;
};

}  // namespace tuft::control
