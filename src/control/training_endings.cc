// Runs whose session ends, and what is said of runs that are not there.
#include <utility>

#include "control/operation_keys.h"
#include "control/training_controller.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr int kTriesMax = 3;
constexpr Nanos kPause = 10 * kSecond;  // before what failed is tried again

// "expired-20260131T120000Z"
std::string expiry_name(Nanos wall) {
  std::string name = "expired-";
  for (const char c : iso_time(wall)) {
    if (c == '.' || c == '+') break;
    if (c != '-' && c != ':') name.push_back(c);
  }
  return name + 'Z';
}

}  // namespace

// Of an own run it says where its weights are.
Error TrainingController::unknown_run(const UserId& user, const RunId& run) const {
  const CheckpointStore::Ptr newest = parts_.checkpoints.newest_training(run);
  const bool is_own = newest != nullptr && newest->owner == user;
  const SessionId session(run.str().substr(0, run.str().find(":train:")));
  const std::string ending = parts_.sessions.ending_of(user, session);
  if (!is_own && ending.empty()) {
    return not_found("unknown model_id: it does not exist or was unloaded", "model_not_found");
  }
  const std::string cause = ending.empty() ? "it was unloaded" : ending;
  if (!is_own) return not_found("this model is not there any more; " + cause, "session_ended");
  return not_found("this model is not there any more; " + cause + ". Its newest checkpoint is " + newest->path.str() +
                       ": make a new model from that",
                   ending.empty() ? "model_not_found" : "session_ended");
}

bool TrainingController::end_idle_run(const UserId& user) {
  for (const RunPtr& run : users_runs(user)) {
    if (!parts_.sessions.is_idle(run->session)) continue;
    {
      MutexLock lock(run->mutex);
      if (run->ending || run->running != nullptr || !run->log.empty()) continue;
    }
    if (parts_.sessions.end_idle(run->session)) return true;
  }
  return false;
}

bool TrainingController::close_session(const UserId& user, const SessionId& session, SessionEnd why) {
  for (const RunPtr& run : session_runs(user, session)) {
    begin_ending(run, why);
    go_on_ending(run);
  }
  return session_runs(user, session).empty();
}

void TrainingController::begin_ending(const RunPtr& run, SessionEnd why) {
  std::vector<OperationPtr> left;
  {
    MutexLock lock(run->mutex);
    if (run->ending || run->closed) return;
    run->ending = RunEnding{.why = why, .saves = parts_.config.limits.save_before_expiry};
    left = run->log.drain();
  }
  {
    MutexLock lock(mutex_);
    uncount_locked(run->user, 1);
  }
  const Error cancelled{ErrorCode::kCancelled, "not executed: " + parts_.sessions.ending_of(run->user, run->session),
                        "session_ended"};
  for (const OperationPtr& operation : left) fail(run, operation, cancelled);
}

// The next thing to do, when nothing is under way.
void TrainingController::go_on_ending(const RunPtr& run) {
  enum class Step : uint8_t { kSave, kUnload, kDrop };
  Step step = Step::kDrop;
  {
    MutexLock lock(run->mutex);
    if (!run->ending || run->closed || run->running != nullptr || run->log.front() != nullptr) return;
    RunEnding& ending = *run->ending;
    if (run->restoring_generation > 0 || parts_.clock.monotonic() < ending.not_before) return;
    const bool gives_up = ending.tries >= kTriesMax;
    if (gives_up && ending.saves) {
      ending.saves = false;
      ending.tries = 0;
    }
    if (run->created && run->backend->holds(run->adapter_generation) && ending.tries < kTriesMax) {
      step = ending.saves && run->weights_changed && !run->broken ? Step::kSave : Step::kUnload;
    }
    ending.not_before = parts_.clock.monotonic() + kPause;
  }
  switch (step) {
    case Step::kSave:
      submit_ending(run, OperationType::kSaveWeights,
                    SaveWeights{run->id, std::nullopt, expiry_name(parts_.clock.wall()), std::nullopt, true});
      return;
    case Step::kUnload:
      submit_ending(run, OperationType::kUnloadModel, {});
      return;
    case Step::kDrop:
      drop_run(run);
      return;
  }
}

// As an operation like those of clients, so that it has its place, its record and its trace. False: not now, because
// the store is away or the server ends.
bool TrainingController::submit_ending(const RunPtr& run, OperationType type, Payload payload) {
  OperationKeys keys = keys_of(*run);
  keys.operation = type;
  auto admission = parts_.futures.admit(run->user, std::move(keys), {}, {}, {.is_servers = true});
  if (!admission.ok()) return false;
  auto operation = std::make_shared<RunOperation>();
  operation->future = std::move(admission->future);
  operation->type = type;
  operation->payload = std::move(payload);
  operation->ends_run = true;
  enqueue(run, operation);
  return true;
}

// What the end of an operation means for the end of its run.
void TrainingController::note_ending_locked(Run& run, const RunOperation& operation,
                                            const Result<FutureValue>& result) {
  if (!run.ending) return;
  RunEnding& ending = *run.ending;
  if (result.ok() || !operation.ends_run) {
    ending.tries = 0;
    ending.not_before = 0;
    return;
  }
  const bool again = is_retryable(result.error().code) && result.error().reason != "checkpoint_bytes_per_user_max";
  ending.tries = again ? ending.tries + 1 : kTriesMax;
}

// What is left of a run whose adapter is in no worker.
void TrainingController::drop_run(const RunPtr& run) {
  remove_run(run, unknown_run(run->user, run->id));
  if (parts_.persistence.enabled()) {
    const MutexLock order(run->record_mutex);
    parts_.persistence.write(changes_of(*run), telemetry::current_context());
  }
  telemetry::log_info("model.unloaded", "model gone with its session", KeyAttributes(keys_of(*run)));
}

// Nobody waits for it, and a worker that is gone has removed it already.
void TrainingController::remove_adapter(const RunPtr& run) {
  const OperationKeys keys = keys_of(*run);
  auto span = std::make_shared<telemetry::Span>(training_backend_tracer().start_span(
      "training_backend.remove_adapter",
      {.attributes = KeyAttributes(keys, {{"tuft.lora_id", run->id.str()}}), .parent = {}}));
  worker::v1::RemoveAdapterRequest request;
  request.set_adapter_id(run->id.str());
  run->backend->actor().remove_adapter(std::move(request), {.trace = span->context(), .ids = call_ids(keys)},
                                       [span](const Result<worker::v1::RemoveAdapterResponse>& result) {
                                         if (!result.ok()) span->record_error(result.error());
                                         span->end();
                                       });
}

}  // namespace tuft::control
