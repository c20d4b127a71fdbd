#include "control/views/queue_state.h"

namespace tuft::control {

namespace {

struct Explanation {
  QueueState state = QueueState::kActive;
  std::string reason = {};
};

Explanation explain(const OperationKeys& keys, const UserId& user, const ModelBackends& backends,
                    const OperationBudget& budget) {
  const Result<ModelPtr> model = backends.find(keys.base_model);
  if (!model.ok()) return {};
  if (!(*model)->ready()) {
    return {QueueState::kPausedCapacity, "the worker of " + (*model)->name() + " is starting, or does not answer"};
  }
  if (auto limit = budget.limit_reached(user)) return {QueueState::kPausedRateLimit, std::move(*limit)};
  const bool is_sample = keys.operation == OperationType::kSample;
  const size_t waiting = (is_sample ? (*model)->sampling_load() : (*model)->training_load()).waiting;
  if (waiting == 0) return {};
  return {QueueState::kPausedCapacity, std::to_string(waiting) + (is_sample ? " samples" : " training runs") +
                                           " wait for their turn at " + (*model)->name()};
}

}  // namespace

QueueState queue_state_of(const OperationKeys& keys, const UserId& user, const ModelBackends& backends,
                          const OperationBudget& budget) {
  return explain(keys, user, backends, budget).state;
}

void explain_queue(FutureSnapshot& snapshot, const UserId& user, const ModelBackends& backends,
                   const OperationBudget& budget) {
  if (snapshot.state != FutureSnapshot::State::kPending || snapshot.at_worker || snapshot.keys == nullptr) return;
  Explanation explanation = explain(*snapshot.keys, user, backends, budget);
  snapshot.queue_state = explanation.state;
  snapshot.queue_reason = std::move(explanation.reason);
}

}  // namespace tuft::control
