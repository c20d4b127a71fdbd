#include "control/views/queue_state.h"

namespace tuft::control {

void explain_queue(FutureSnapshot& snapshot, const UserId& user, const ModelBackends& backends,
                   const OperationBudget& budget) {
  if (snapshot.state != FutureSnapshot::State::kPending || snapshot.at_worker || snapshot.keys == nullptr) return;
  const auto backend = backends.find(snapshot.keys->base_model);
  if (!backend.ok()) return;
  const auto explain = [&](QueueState state, std::string reason) {
    snapshot.queue_state = state;
    snapshot.queue_reason = std::move(reason);
  };
  if (!(*backend)->actor().ready()) {
    return explain(QueueState::kPausedCapacity,
                   "the worker of " + (*backend)->name() + " is starting, or does not answer");
  }
  if (auto limit = budget.limit_reached(user)) return explain(QueueState::kPausedRateLimit, std::move(*limit));
  const bool is_sample = snapshot.operation == OperationType::kSample;
  const DispatchQueue& queue = is_sample ? (*backend)->sampling_queue() : (*backend)->training_queue();
  const DispatchQueue::Load load = queue.load();
  if (load.waiting == 0) return;
  explain(QueueState::kPausedCapacity, std::to_string(load.waiting) + (is_sample ? " samples" : " training runs") +
                                           " wait for their turn at " + (*backend)->name());
}

}  // namespace tuft::control
