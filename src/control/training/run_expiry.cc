#include "control/training/run_expiry.h"

#include <memory>
#include <utility>
#include <vector>

#include "control/types/operation_keys.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr Nanos kPause = 10 * kSecond;  // before a failed step is tried again

enum class Step : uint8_t { kNone, kSave, kUnload, kDrop };

Step next_step_locked(Run& run, Nanos now) TUFT_REQUIRES(run.mutex) {
  if (!run.ending || run.closed || run.running != nullptr || run.is_out_of_reach_locked()) return Step::kNone;
  if (!run.has_adapter_locked()) return Step::kDrop;  // what waits for its turn never gets it
  RunEnding& ending = *run.ending;
  if (run.log.front() != nullptr || now < ending.not_before) return Step::kNone;
  ending.not_before = now + kPause;
  if (ending.tries >= RunEnding::kTriesMax && ending.saves) {
    ending.saves = false;
    ending.tries = 0;
  }
  if (ending.tries >= RunEnding::kTriesMax) return Step::kDrop;
  return ending.saves && run.weights_changed && !run.broken ? Step::kSave : Step::kUnload;
}

}  // namespace

bool RunExpiry::close_session(const UserId& user, const SessionId& session, SessionEnd why) {
  for (const RunPtr& run : parts_.runs.of_session(user, session)) {
    begin(run, why);
    go_on(run);
  }
  return parts_.runs.of_session(user, session).empty();
}

void RunExpiry::end_without_session(const RunPtr& run) {
  if (!parts_.sessions.exists(run->session)) begin(run, SessionEnd::kSilent);
}

void RunExpiry::begin(const RunPtr& run, SessionEnd why) {
  std::vector<OperationPtr> left;
  {
    MutexLock lock(run->mutex);
    if (run->ending || run->closed) return;
    run->leaves_until = 0;
    run->ending = RunEnding{.why = why, .saves = parts_.limits.save_before_expiry};
    left = run->log.drain();
    parts_.runs.attend_locked(run);
  }
  parts_.executor.fail(run, left,
                       Error{ErrorCode::kCancelled,
                             "not executed: " + parts_.sessions.ending_of(run->user, run->session), "session_ended"});
}

void RunExpiry::go_on(const RunPtr& run) {
  Step step = Step::kNone;
  {
    MutexLock lock(run->mutex);
    step = next_step_locked(*run, parts_.clock.monotonic());
  }
  switch (step) {
    case Step::kNone:
      return;
    case Step::kSave: {
      const int64_t ttl = parts_.limits.expired_checkpoint_ttl_seconds;
      return submit(run, OperationType::kSaveWeights,
                    SaveWeights{run->id, std::nullopt, name_of_save("expired", parts_.clock.wall()),
                                ttl > 0 ? std::optional(ttl) : std::nullopt, true});
    }
    case Step::kUnload:
      return submit(run, OperationType::kUnloadModel, {});
    case Step::kDrop:
      return drop(run);
  }
}

// If nothing can be submitted now, go_on() tries again.
void RunExpiry::submit(const RunPtr& run, OperationType type, RunOperation::Payload payload) {
  const OperationPtr operation = parts_.executor.own_operation(*run, type, std::move(payload));
  if (operation == nullptr) return;
  operation->ends_run = true;
  parts_.executor.enqueue(run, operation);
}

// No worker holds the adapter: removes the run and its record.
void RunExpiry::drop(const RunPtr& run) {
  parts_.executor.close(run, parts_.runs.unknown(run->user, run->id));
  if (parts_.persistence.enabled()) {
    const MutexLock order(run->record_mutex);
    parts_.persistence.write(run->user, changes_of(*run, parts_.persistence, parts_.clock.wall()),
                             telemetry::current_context());
  }
  telemetry::log_info("model.unloaded", "model removed with its session", KeyAttributes(keys_of(*run)));
}

}  // namespace tuft::control
