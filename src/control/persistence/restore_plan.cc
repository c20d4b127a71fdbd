#include "control/persistence/restore_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "control/types/checkpoint_path.h"
#include "control/types/errors.h"

namespace tuft::control {
namespace {

using State = FutureSnapshot::State;

// Returns true for operations whose effect or result is lost with the weights.
bool depends_on_weights(OperationType type) {
  switch (type) {
    case OperationType::kForward:
    case OperationType::kForwardBackward:
    case OperationType::kOptimStep:
    case OperationType::kLoadWeights:
      return true;
    case OperationType::kCreateModel:
    case OperationType::kUnloadModel:
    case OperationType::kSaveWeights:
    case OperationType::kSaveWeightsForSampler:
    case OperationType::kSaveWeightsExternal:
    case OperationType::kSample:
    case OperationType::kUnknown:
    case OperationType::kCreateCustomLoss:
      break;
  }
  return false;
}

bool changes_weights(OperationType type) {
  return depends_on_weights(type) && type != OperationType::kForward;
}

// The state to which a run is rolled back.
struct Boundary {
  CheckpointPtr checkpoint;  // null: the start, or one that is not there
  uint64_t number = 0;
  std::optional<int64_t> seq_id;

  // Compares the seq_ids if both have one, because that is the order of execution.
  bool is_before(const FutureRecord& future) const {
    if (future.keys.seq_id && (seq_id || number == 0)) return *future.keys.seq_id > seq_id.value_or(0);
    return future.number > number;
  }
  // A save of the server has a higher number than operations that were submitted before it and executed after it.
  bool is_before(const Checkpoint& other) const {
    if (other.seq_id && seq_id && *other.seq_id != *seq_id) return *other.seq_id > *seq_id;
    return other.future_number > number;
  }
};

struct RunPlan {
  RestoredRun* run = nullptr;
  Boundary boundary;
  std::string to;  // the moment it goes back to, for messages
};

// Returns the newer of the checkpoint in the record and the newest on disk: a server may die between the two writes.
Boundary find_boundary(RunRecord& record, const CheckpointIndex& checkpoints) {
  Boundary boundary;
  if (record.restore_point) {
    boundary.checkpoint = same_checkpoint(*record.restore_point, checkpoints);
    boundary.number = record.restore_number;
    boundary.seq_id = record.restore_seq_id;
    if (boundary.checkpoint == nullptr) boundary = {};
  }
  const CheckpointPtr newest = checkpoints.newest_training(record.id);
  if (newest != nullptr && boundary.is_before(*newest)) {
    const bool unrecorded = newest->future_number > record.restore_number;
    boundary = {newest, newest->future_number, newest->seq_id};
    record.restore_with_optimizer = true;
    if (unrecorded) {
      // The record is older than the checkpoint, and so are its unsaved changes, but not its gradient.
      record.weights_changed = false;
      record.restore_lacks_gradient = record.gradient_pending;
    } else {
      record.weights_changed = true;
      record.restore_lacks_gradient = true;  // nobody knows any more
    }
  } else if (record.restore_point && boundary.checkpoint == nullptr) {
    record.weights_changed = true;  // its checkpoint was deleted or replaced, or cannot be read
    boundary = {nullptr, record.restore_number, record.restore_seq_id};
  }
  return boundary;
}

RunPlan plan_run(RestoredRun& run, const std::vector<const FutureRecord*>& futures,
                 const CheckpointIndex& checkpoints) {
  RunPlan plan{&run, find_boundary(run.record, checkpoints), "its first state, as it had no checkpoint"};
  const Boundary& boundary = plan.boundary;
  run.checkpoint = boundary.checkpoint;
  run.lost = run.record.weights_changed || run.record.gradient_pending;
  int64_t highest = std::max(run.record.next_seq_id - 1, boundary.seq_id.value_or(0));
  int64_t kept = 0;  // the highest number before the boundary
  for (const FutureRecord* future : futures) {
    if (is_gone(*future)) continue;  // undone by an earlier restart, which freed its number
    if (future->keys.seq_id) highest = std::max(highest, *future->keys.seq_id);
    if (future->keys.seq_id && !boundary.is_before(*future)) kept = std::max(kept, *future->keys.seq_id);
    if (future->state == State::kFailed || !changes_weights(future->keys.operation)) continue;
    run.lost = run.lost || boundary.is_before(*future);
  }
  RunRecord& record = run.record;
  record.weights_changed = run.lost;
  record.gradient_pending = false;
  record.next_seq_id = highest + 1;
  if (run.lost && boundary.seq_id) {
    record.next_seq_id = *boundary.seq_id + 1;
  } else if (run.lost && boundary.checkpoint == nullptr) {
    record.next_seq_id = kept + 1;
  }
  record.restore_number = boundary.number;
  record.restore_seq_id = boundary.seq_id;
  if (boundary.checkpoint != nullptr) {
    record.restore_point = CheckpointRef{boundary.checkpoint->path.str(), boundary.checkpoint->future_number};
  }
  if (record.restore_point) {
    plan.to = "checkpoint " + record.restore_point->path;
    if (boundary.seq_id) plan.to += " (seq_id " + std::to_string(*boundary.seq_id) + ")";
    if (boundary.checkpoint == nullptr) plan.to += ", which is gone or cannot be read";
  }
  return plan;
}

// Returns the result of a save that has succeeded, and only its result was not recorded. An unnamed sampler save has
// none, because nobody knows its sampling session.
std::optional<FutureValue> result_of_save(const FutureRecord& future, const CheckpointIndex& checkpoints) {
  const OperationType type = future.keys.operation;
  const bool saves = type == OperationType::kSaveWeights || type == OperationType::kSaveWeightsExternal ||
                     type == OperationType::kSaveWeightsForSampler;
  const CheckpointPtr saved = saves ? checkpoints.saved_by(future.keys.run, future.number) : nullptr;
  if (saved == nullptr) return std::nullopt;
  const std::string path = saved->path.str();
  if (type == OperationType::kSaveWeights) return SaveWeightsResult{path};
  if (type == OperationType::kSaveWeightsExternal) return SaveWeightsExternalResult{path, saved->size_bytes};
  return SaveWeightsForSamplerResult{path, std::nullopt};
}

bool is_unfinished(const FutureRecord& future, const CheckpointIndex& checkpoints) {
  return future.state == State::kPending && !result_of_save(future, checkpoints);
}

// The run goes on from what the worker holds: from the operation after the last one that has a result.
void let_hope(RestoredRun& run, const RunRecord& stored, const std::vector<const FutureRecord*>& futures,
              const CheckpointIndex& checkpoints) {
  run.fallback = std::make_shared<RunFallback>(RunFallback{run.record, run.lost, {}});
  run.lost = false;
  RunRecord& record = run.record;
  record.gradient_pending = stored.gradient_pending;
  record.next_seq_id = stored.next_seq_id;
  for (const FutureRecord* future : futures) {
    if (is_unfinished(*future, checkpoints)) {
      run.unfinished.push_back(*future);
    } else if (future->keys.seq_id && !is_gone(*future)) {
      record.next_seq_id = std::max(record.next_seq_id, *future->keys.seq_id + 1);
      run.finished_seq_ids.push_back(*future->keys.seq_id);
    }
  }
  // Futures are in the order of their arrival.
  std::stable_sort(run.unfinished.begin(), run.unfinished.end(), [](const FutureRecord& a, const FutureRecord& b) {
    return a.keys.seq_id && b.keys.seq_id && *a.keys.seq_id < *b.keys.seq_id;
  });
  for (const FutureRecord& future : run.unfinished) {
    if (future.keys.seq_id) record.next_seq_id = std::min(record.next_seq_id, *future.keys.seq_id);
  }
  std::erase_if(run.finished_seq_ids, [&](int64_t seq_id) { return seq_id < record.next_seq_id; });
}

Error rolled_back(const std::string& to) {
  return server_restarted(
      "the server was restarted and this model went back to " + to +
      "; this operation came after that and is undone. Train again from there, or load another checkpoint");
}

Error not_finished(const FutureRecord& future, const RunPlan* plan) {
  if (plan == nullptr) {
    return unfinished_at_restart();
  }
  if (plan->boundary.is_before(future)) return rolled_back(plan->to);
  return server_restarted("the server was restarted before the result of this operation was kept; the model is at " +
                          plan->to + ". Go on from there, or load another checkpoint");
}

void give_up(FutureRecord& future, Error error) {
  future.state = State::kFailed;
  future.value = nullptr;
  future.apart.reset();
  future.error = std::move(error);
  future.key.clear();
}

bool complete_save(FutureRecord& future, const CheckpointIndex& checkpoints) {
  std::optional<FutureValue> result = result_of_save(future, checkpoints);
  if (!result) return false;
  future.state = State::kReady;
  future.value = std::make_shared<const FutureValue>(*std::move(result));
  return true;
}

// Decides what becomes of an operation. Returns whether its record changed.
bool settle(FutureRecord& future, const RunPlan* run, const CheckpointIndex& checkpoints) {
  const bool lost = run != nullptr && (run->run->hopes() ? run->run->fallback->lost : run->run->lost);
  const bool undone = lost && run->boundary.is_before(future);
  const State stored = future.state;
  if (stored == State::kPending && !complete_save(future, checkpoints)) {
    give_up(future, not_finished(future, run));
  } else if (stored == State::kReady && undone && depends_on_weights(future.keys.operation)) {
    give_up(future, rolled_back(run->to));
  }
  // Frees the operation's number, also for the next restart.
  const bool frees_number = undone && !is_gone(future) && (future.keys.seq_id || !future.key.empty());
  if (frees_number) {
    future.keys.seq_id.reset();
    future.key.clear();
  }
  return future.state != stored || frees_number;
}

}  // namespace

CheckpointPtr same_checkpoint(const CheckpointRef& ref, const CheckpointIndex& checkpoints) {
  CheckpointPtr found = checkpoints.find(ref.path);
  return found != nullptr && found->future_number == ref.future_number ? found : nullptr;
}

std::vector<SamplerRecord> follow_newest(std::vector<SamplerRecord>& samplers) {
  const auto followed_by = [](const SamplerRecord& sampler) {
    const auto path = parse_checkpoint_path(sampler.checkpoint ? sampler.checkpoint->path : std::string());
    return sampler.inflight && path.ok() ? follow_key(path->run, sampler.base_model) : std::string();
  };
  std::unordered_map<std::string, CheckpointRef> newest;
  for (const SamplerRecord& sampler : samplers) {
    const std::string followed = followed_by(sampler);
    if (followed.empty()) continue;
    CheckpointRef& ref = newest[followed];
    if (ref.path.empty() || ref.future_number < sampler.checkpoint->future_number) ref = *sampler.checkpoint;
  }
  std::vector<SamplerRecord> changed;
  for (SamplerRecord& sampler : samplers) {
    const auto found = newest.find(followed_by(sampler));
    if (found == newest.end() || found->second.path == sampler.checkpoint->path) continue;
    sampler.checkpoint = found->second;
    changed.push_back(sampler);
  }
  return changed;
}

RestorePlan plan_restore(StoredState state, const CheckpointIndex& checkpoints,
                         const std::function<bool(const RunRecord&)>& may_be_held) {
  RestorePlan plan;
  plan.sessions = std::move(state.sessions);
  plan.samplers = std::move(state.samplers);
  std::sort(plan.samplers.begin(), plan.samplers.end(), [](const SamplerRecord& a, const SamplerRecord& b) {
    return std::tie(a.created_at, a.seq_id) < std::tie(b.created_at, b.seq_id);
  });
  // Pointers, because a record is large to move, and there may be very many.
  std::vector<FutureRecord*> futures;
  futures.reserve(state.futures.size());
  for (FutureRecord& future : state.futures) futures.push_back(&future);
  std::sort(futures.begin(), futures.end(), [](const auto* a, const auto* b) { return a->number < b->number; });
  std::unordered_map<RunId, std::vector<const FutureRecord*>> futures_of;
  for (const FutureRecord* future : futures) {
    plan.last_future_number = std::max(plan.last_future_number, future->number);
    if (!future->keys.run.empty()) futures_of[future->keys.run].push_back(future);
  }
  plan.runs.reserve(state.runs.size());  // RunPlan points into it
  std::unordered_map<RunId, RunPlan> plans;
  for (RunRecord& record : state.runs) {
    const RunId id = record.id;
    plan.runs.push_back({record, nullptr, false});
    plans.emplace(id, plan_run(plan.runs.back(), futures_of[id], checkpoints));
    if (may_be_held && may_be_held(record)) let_hope(plan.runs.back(), record, futures_of[id], checkpoints);
    const Boundary& boundary = plans.at(id).boundary;
    plan.last_future_number =
        std::max({plan.last_future_number, boundary.number, plan.runs.back().record.restore_number});
  }
  // The records of old operations are dropped, but checkpoints are told apart by their numbers for ever.
  for (const SamplerRecord& sampler : plan.samplers) {
    if (!sampler.checkpoint) continue;
    plan.last_future_number = std::max(plan.last_future_number, sampler.checkpoint->future_number);
  }
  plan.futures.reserve(futures.size());
  for (FutureRecord* const next : futures) {
    FutureRecord& future = *next;
    const auto found = plans.find(future.keys.run);
    const RunPlan* run = found == plans.end() ? nullptr : &found->second;
    if (run == nullptr || !run->run->hopes()) {
      if (settle(future, run, checkpoints)) plan.settled.push_back(future);
      (is_gone(future) ? plan.gone : plan.futures).push_back(std::move(future));
      continue;
    }
    // A save that has succeeded keeps its number: only the fallback frees it.
    if (future.state == State::kPending && complete_save(future, checkpoints)) plan.settled.push_back(future);
    FutureRecord given_up = future;
    if (settle(given_up, run, checkpoints)) run->run->fallback->settled.push_back(std::move(given_up));
    // Those that are pending are among the unfinished operations of the run.
    if (future.state != State::kPending) (is_gone(future) ? plan.gone : plan.futures).push_back(std::move(future));
  }
  return plan;
}

RestorePlan plan_view(StoredState state, const CheckpointIndex& checkpoints) {
  std::vector<FutureRecord> finished = state.futures;
  std::erase_if(finished, [](const FutureRecord& future) { return future.state == FutureSnapshot::State::kPending; });
  std::sort(finished.begin(), finished.end(),
            [](const FutureRecord& a, const FutureRecord& b) { return a.number < b.number; });
  RestorePlan plan = plan_restore(std::move(state), checkpoints);
  plan.futures = std::move(finished);
  plan.gone.clear();
  plan.settled.clear();
  return plan;
}

}  // namespace tuft::control
