#include "control/training/run_replay.h"

#include <utility>
#include <vector>

#include "control/types/operation_keys.h"
#include "metrics/training.h"
#include "rpc/methods.h"
#include "telemetry/log.h"

namespace tuft::control {

struct RunReplay::Progress {
  RunPtr run;
  uint64_t incarnation = 0;
  std::vector<JournalEntryPtr> entries;
  std::string last_operation;  // the name of the last call, by which the worker can tell later what it holds
  size_t next = 0;
  Nanos began = 0;
  std::function<void(Status)> done;
};

void RunReplay::start(const RunPtr& run, uint64_t incarnation, std::function<void(Status)> done) const {
  auto progress = std::make_shared<Progress>();
  progress->run = run;
  progress->incarnation = incarnation;
  progress->began = clock_.monotonic();
  progress->done = std::move(done);
  {
    MutexLock lock(run->mutex);
    progress->last_operation = run->last_operation;
    progress->entries.assign(run->journal.entries().begin(), run->journal.entries().end());
  }
  go_on(progress);
}

void RunReplay::go_on(const std::shared_ptr<Progress>& progress) const {
  if (progress->next == progress->entries.size()) return end(*progress, {});
  const JournalEntryPtr& entry = progress->entries[progress->next++];
  const bool is_last = progress->next == progress->entries.size();
  const Run& run = *progress->run;
  actor::ModelActor& actor = run.backend()->actor();
  if (const auto* step = std::get_if<OptimStep>(&entry->payload)) {
    auto call = WorkerCalls::begin_call("training_backend.optim_step", run, progress->incarnation);
    if (is_last) call.options.ids.set_request_id(progress->last_operation);
    call.span->set_attribute("tuft.restored", true);
    actor.call<rpc::OptimStep>(std::make_shared<const worker::v1::OptimStepRequest>(optim_step_request(*step)),
                               call.options, next<worker::v1::OptimStepResponse>(call, progress));
    return;
  }
  const auto& pass = std::get<worker::v1::ForwardBackwardRequest>(entry->payload);
  auto call = WorkerCalls::begin_call("training_backend.forward_backward", run, progress->incarnation);
  if (is_last) call.options.ids.set_request_id(progress->last_operation);
  call.span->set_attribute("tuft.restored", true);
  actor.call<rpc::ForwardBackward>({entry, &pass}, call.options,
                                   next<worker::v1::ForwardBackwardResponse>(call, progress));
}

template <typename Response>
actor::Callback<Response> RunReplay::next(const WorkerCalls::Call& call,
                                          const std::shared_ptr<Progress>& progress) const {
  return calls_.answer_to<Response>(call, [this, progress](const Result<Response>& result) {
    result.ok() ? go_on(progress) : end(*progress, result.error());
  });
}

void RunReplay::end(const Progress& progress, Status status) const {
  if (!progress.entries.empty()) record(*progress.run, progress, status);
  progress.done(std::move(status));
}

void RunReplay::record(const Run& run, const Progress& progress, const Status& status) const {
  const auto operations = static_cast<int64_t>(progress.entries.size());
  const double seconds = to_seconds(clock_.monotonic() - progress.began);
  if (status.ok()) {
    telemetry::log_info("model.replayed", "what the model's worker lost was made again",
                        KeyAttributes(keys_of(run), {{"tuft.operations", operations}, {"tuft.seconds", seconds}}));
  } else {
    telemetry::log_warning("model.replay_failed",
                           "what the model's worker lost could not be made again: " + status.error().message,
                           KeyAttributes(keys_of(run), {{"tuft.operations", operations}, {"tuft.seconds", seconds}}));
  }
  metrics::training().run_replays.add(
      1, {{"base_model", run.backend()->name()}, {"result", status.ok() ? "done" : "failed"}});
}

}  // namespace tuft::control
