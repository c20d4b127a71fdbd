#include "control/training/run_resumption.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "control/training/training_telemetry.h"
#include "control/types/errors.h"
#include "control/types/operation_keys.h"
#include "metrics/training.h"
#include "rpc/methods.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

bool is_method(const worker::v1::HeldCall& call, const rpc::Method& method) {
  return call.method() == method.name;
}

// Whether a process that does not know the call can finish its operation with the answer alone.
bool is_pass_or_step(const worker::v1::HeldCall& call) {
  return is_method(call, rpc::ForwardBackward::kMethod) || is_method(call, rpc::OptimStep::kMethod);
}

// Whether the adapter is the same after the call.
bool leaves_adapter(const worker::v1::HeldCall& call) {
  return is_method(call, rpc::SaveState::kMethod) || is_method(call, rpc::PublishAdapter::kMethod);
}

// Whether it is known what the worker that serves holds.
bool is_known(const ModelBackend& worker) {
  return worker.actor().ready() && worker.is_cleared(worker.actor().incarnation());
}

FutureRecord record_of(const Run& run, const worker::v1::CallIds& ids) {
  FutureRecord record;
  record.request = RequestId(ids.request_id());
  record.user = run.user;
  record.keys = keys_of(run);
  record.keys.request = record.request;
  record.keys.operation = find_operation(ids.operation_type()).value_or(OperationType::kUnknown);
  record.keys.seq_id = ids.seq_id();
  record.key = submission_key(run.id, ids.seq_id());
  return record;
}

}  // namespace

// cleared() follows when the last pointer to this goes: when all adapters that nobody wants have been removed from the
// worker, so that a run can be restored under the name of one of them.
class RunResumption::Rest {
 public:
  Rest(RunResumption& resumption, ModelBackendPtr worker, uint64_t incarnation)
      : resumption_(resumption),
        owner_(resumption.parts_.lifetime.owner()),
        worker_(std::move(worker)),
        incarnation_(incarnation) {}
  ~Rest() {
    if (const auto alive = owner_.lock()) resumption_.cleared(worker_, incarnation_);
  }
  Rest(const Rest&) = delete;
  Rest& operator=(const Rest&) = delete;

 private:
  RunResumption& resumption_;
  const std::weak_ptr<void> owner_;
  const ModelBackendPtr worker_;
  const uint64_t incarnation_;
};

void RunResumption::hope(const RestoredRun& restored) {
  const RunPtr run = parts_.runs.of_any_user(restored.record.id);
  for (const FutureRecord& record : restored.unfinished) {
    FuturePtr future = parts_.futures.take_in(record);
    if (future == nullptr) continue;
    if (run == nullptr) {
      parts_.futures.complete(future,
                              server_restarted("the server was restarted, and this model could not be restored"));
      continue;
    }
    parts_.executor.enqueue(run, resumed(*run, std::move(future)));
  }
  if (run == nullptr) return;
  MutexLock lock(mutex_);
  hopes_.push_back({run, restored.fallback});
  hope_until_ = parts_.clock.monotonic() + kHope;
}

OperationPtr RunResumption::resumed(const Run& run, FuturePtr future) const {
  auto operation = std::make_shared<RunOperation>();
  operation->type = future->operation;
  operation->seq_id = future->keys.seq_id;
  operation->future = std::move(future);
  operation->resumes = true;
  start_operation_span(run, *operation);
  switch (operation->type) {
    case OperationType::kOptimStep: {
      OptimStep step;
      step.run = run.id;
      step.optimizer = run.optimizer;
      operation->payload = step;
      break;
    }
    case OperationType::kForward:
    case OperationType::kForwardBackward: {
      worker::v1::ForwardBackwardRequest pass;
      pass.set_adapter_id(run.id.str());
      operation->payload = std::move(pass);
      break;
    }
    default:  // its end needs more than the answer of the worker
      operation->refusal = unfinished_at_restart();
  }
  return operation;
}

void RunResumption::on_worker_ready(const ModelBackendPtr& backend, uint64_t incarnation,
                                    const worker::v1::ListHoldingsResponse& holdings) {
  const auto rest = std::make_shared<Rest>(*this, backend, incarnation);
  int64_t kept = 0;
  int64_t given_up = 0;
  for (const Held& held : holdings.adapters()) {
    const RunPtr run = parts_.runs.of_any_user(RunId(held.adapter_id()));
    if (run != nullptr && take_over(run, backend, incarnation, held)) {
      ++kept;
    } else {
      ++given_up;
      remove(backend, incarnation, held.adapter_id(), rest);
    }
  }
  for (const RunPtr& run : parts_.cut.runs()) {
    if (run->backend() == backend) go_on(run, incarnation);
  }
  if (holdings.adapters().empty()) return;
  metrics::training().run_resumes.add(kept, {{"base_model", backend->name()}, {"result", "kept"}});
  metrics::training().run_resumes.add(given_up, {{"base_model", backend->name()}, {"result", "given_up"}});
  telemetry::log_info("models.resumed", "a worker came back with adapters, and their models go on without a loss",
                      {{"tuft.base_model", backend->name()},
                       {"tuft.worker.name", backend->label()},
                       {"tuft.runs", kept},
                       {"tuft.runs_given_up", given_up}});
}

std::optional<std::vector<const worker::v1::HeldCall*>> RunResumption::newer_calls_locked(const Run& run,
                                                                                          const Held& held) {
  if (run.last_operation.empty()) return std::nullopt;
  bool is_known = held.before() == run.last_operation;
  std::vector<const worker::v1::HeldCall*> newer;
  for (const worker::v1::HeldCall& call : held.calls()) {
    if (call.ids().request_id() == run.last_operation) {
      is_known = true;
      newer.clear();
    } else {
      newer.push_back(&call);
    }
  }
  return is_known ? std::optional(std::move(newer)) : std::nullopt;
}

bool RunResumption::is_known_locked(Run& run, const worker::v1::HeldCall& call) {
  const worker::v1::CallIds& ids = call.ids();
  if (leaves_adapter(call)) return true;
  if (run.running != nullptr && call_id_of(*run.running) == ids.request_id()) return true;
  const auto is_it = [&](const RunOperation& each) { return each.resumes && call_id_of(each) == ids.request_id(); };
  if (run.log.find(is_it) != nullptr) return true;
  if (!run.hopes || !is_pass_or_step(call) || ids.seq_id() == 0) return false;
  const OperationPtr again = run.log.find([&](const RunOperation& each) {
    return each.call_id.empty() && !each.refusal && each.seq_id == ids.seq_id() &&
           operation_name(each.type) == ids.operation_type();
  });
  if (again == nullptr) return false;
  again->resumes = true;
  again->call_id = ids.request_id();
  return true;
}

bool RunResumption::take_over(const RunPtr& run, const ModelBackendPtr& worker, uint64_t incarnation,
                              const Held& held) {
  std::vector<worker::v1::HeldCall> unstored;
  std::string_view obstacle;
  {
    MutexLock lock(run->mutex);
    const bool is_there =
        run->backend() == worker && (run->adapter_incarnation == incarnation ||
                                     (run->running != nullptr && run->running->incarnation == incarnation));
    if (is_there) return true;
    obstacle = obstacle_locked(*run, held, unstored);
  }
  constexpr std::string_view kOtherNumber = "an operation came again with another number";
  if (obstacle.empty() && !add_unstored(run, unstored)) obstacle = kOtherNumber;
  {
    MutexLock lock(run->mutex);
    // Again, because the run may have been given up, moved or ended meanwhile.
    unstored.clear();
    if (obstacle.empty()) obstacle = obstacle_locked(*run, held, unstored);
    if (obstacle.empty() && !unstored.empty()) obstacle = kOtherNumber;
    if (obstacle.empty() && worker->actor().incarnation() != incarnation) obstacle = "the connection broke again";
    if (obstacle.empty()) {
      parts_.runs.attend_locked(run);
      if (run->backend() != worker) run->place.move(*worker);
      run->adapter_incarnation = incarnation;
      run->hopes = false;
      run->from_store = false;
      run->unheld_since = 0;
      run->leaves_until = 0;
    }
  }
  const std::string label = worker->label();
  const telemetry::Attribute name = {"tuft.worker.name", label};
  if (!obstacle.empty()) {
    telemetry::log_info("model.not_resumed",
                        "a worker came back with a model that does not go on there: " + std::string(obstacle),
                        KeyAttributes(keys_of(*run), {name}));
    return false;
  }
  telemetry::log_debug("model.resumed", "the model goes on at its worker, which came back",
                       KeyAttributes(keys_of(*run), {name}));
  parts_.executor.pump(run);
  return true;
}

std::string_view RunResumption::obstacle_locked(Run& run, const Held& held,
                                                std::vector<worker::v1::HeldCall>& unstored) {
  if (run.restoring_incarnation > 0 || run.backend()->holds(run.adapter_incarnation)) return "it is elsewhere";
  if (!run.hopes && run.adapter_incarnation == 0) return "it has moved";
  // One that ends and hopes is taken over to be saved; it accepts no operations any more.
  if (!run.created || run.closed || (run.ending && !run.hopes) || run.broken) return "it ends";
  if (run.running != nullptr && run.running->was_given_up) return "its operation was given up";
  const auto newer = newer_calls_locked(run, held);
  if (!newer) return "the worker lacks operations that were made elsewhere";
  for (const worker::v1::HeldCall* call : *newer) {
    if (is_known_locked(run, *call)) continue;
    if (!run.hopes || !is_pass_or_step(*call) || call->ids().seq_id() <= 0) {
      return "the worker made an operation that was reported failed";
    }
    unstored.push_back(*call);
  }
  if (run.ending && !unstored.empty()) return "it ends";
  return {};
}

bool RunResumption::add_unstored(const RunPtr& run, const std::vector<worker::v1::HeldCall>& calls) {
  for (const worker::v1::HeldCall& call : calls) {
    FuturePtr future = parts_.futures.take_in(record_of(*run, call.ids()));
    if (future == nullptr) return false;
    parts_.executor.enqueue(run, resumed(*run, std::move(future)));
  }
  return true;
}

// Makes the cut call of a run again if its adapter is in this life of its worker, and else ends it.
void RunResumption::go_on(const RunPtr& run, uint64_t incarnation) {
  bool is_held = false;
  {
    MutexLock lock(run->mutex);
    is_held = run->adapter_incarnation == incarnation;
    if (is_held && run->running != nullptr) run->running->incarnation = incarnation;
  }
  const std::optional<CutCall> call = parts_.cut.take(run);
  if (!call) return;
  is_held ? call->again(incarnation) : call->fail();
}

void RunResumption::give_up(const RunPtr& run) {
  std::optional<CutCall> call;
  {
    MutexLock lock(run->mutex);
    if (run->backend()->actor().up()) return;
    call = parts_.cut.take(run);
    // Until it has failed, the operation is the one that runs, and take_over() would find that it is known.
    if (call && run->running != nullptr) run->running->was_given_up = true;
  }
  if (call) call->fail();
}

void RunResumption::remove(const ModelBackendPtr& worker, uint64_t incarnation, const std::string& adapter,
                           const std::shared_ptr<Rest>& rest) const {
  worker::v1::RemoveAdapterRequest request;
  request.set_adapter_id(adapter);
  worker->actor().remove_adapter(std::move(request), {.incarnation = incarnation},
                                 [rest](const Result<worker::v1::RemoveAdapterResponse>&) {});
}

void RunResumption::cleared(const ModelBackendPtr& worker, uint64_t incarnation) {
  worker->note_cleared(incarnation);
  end_hopes();
  parts_.restorer.on_worker_ready(worker, incarnation);
}

void RunResumption::end_hopes() {
  std::vector<Hope> hopes;
  bool all = false;
  {
    MutexLock lock(mutex_);
    if (hopes_.empty()) return;
    all = parts_.clock.monotonic() >= hope_until_;
    hopes.swap(hopes_);
  }
  std::erase_if(hopes, [&](const Hope& hope) {
    const auto& workers = hope.run->place.model()->workers();
    const bool ends = all || std::all_of(workers.begin(), workers.end(),
                                         [](const ModelBackendPtr& worker) { return is_known(*worker); });
    if (ends) fall_back(hope.run, *hope.fallback);
    MutexLock lock(hope.run->mutex);
    return !hope.run->hopes;
  });
  MutexLock lock(mutex_);
  hopes_.insert(hopes_.end(), hopes.begin(), hopes.end());
}

void RunResumption::fall_back(const RunPtr& run, const RunFallback& fallback) {
  std::unordered_map<std::string, const FutureRecord*> settled;
  for (const FutureRecord& record : fallback.settled) settled.emplace(record.request.str(), &record);
  std::vector<OperationPtr> left;
  {
    // Until the record is written, so that who closes the run meanwhile erases it afterwards.
    const MutexLock order(run->record_mutex);
    {
      MutexLock lock(run->mutex);
      if (!run->hopes) return;  // a worker has it, or it is closed
      run->hopes = false;
      left = run->log.restart_at(fallback.record.next_seq_id);
      run->numbers_lost = fallback.lost;
      run->gradient_lost = fallback.lost && fallback.record.restore_lacks_gradient;
      run->weights_changed = fallback.lost;
      if (fallback.lost) run->journal.give_up();
      run->gradient_pending = false;
      run->last_operation.clear();
    }
    parts_.futures.undo(fallback.settled);
    parts_.persistence.write(run->user, {parts_.persistence.put(fallback.record)}, {});
  }
  for (const OperationPtr& operation : left) {
    const auto record = settled.find(operation->future->request.str());
    // Those that came meanwhile did not know of the loss.
    if (record == settled.end()) {
      enqueue_again(run, operation);
    } else {
      parts_.executor.fail(run, {operation}, record->second->error);
    }
  }
}

void RunResumption::enqueue_again(const RunPtr& run, const OperationPtr& operation) {
  {
    MutexLock lock(run->mutex);
    if (operation->is_timed) run->step_clock.dropped(parts_.clock.monotonic());
    operation->is_timed = false;
  }
  parts_.executor.enqueue(run, operation);
}

// A call can be cut just after its worker came back, and a worker may never come back.
void RunResumption::sweep() {
  const Nanos oldest = parts_.clock.monotonic() - kWorkerWait;
  for (const RunPtr& run : parts_.cut.runs()) {
    const ModelBackendPtr worker = run->backend();
    uint64_t sent = 0;
    bool is_late = false;
    {
      MutexLock lock(run->mutex);
      if (run->running == nullptr) continue;
      sent = run->running->incarnation;
      is_late = run->running->started <= oldest;
    }
    const uint64_t incarnation = worker->actor().incarnation();
    if (is_known(*worker) && incarnation > sent) {
      go_on(run, incarnation);
    } else if (is_late) {
      give_up(run);
    }
  }
  end_hopes();
}

void RunResumption::shut_down() {
  for (const RunPtr& run : parts_.cut.runs()) {
    if (const std::optional<CutCall> call = parts_.cut.take(run)) call->fail();
  }
}

}  // namespace tuft::control
