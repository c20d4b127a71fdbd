// Explains to a client why its operation is still pending.
#pragma once

#include "control/futures/operation_budget.h"
#include "control/types/types.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// Returns how an operation of the user waits that no worker has.
QueueState queue_state_of(const OperationKeys& keys, const UserId& user, const ModelBackends& backends,
                          const OperationBudget& budget);

// Sets queue_state and queue_reason of a pending snapshot; other snapshots are unchanged.
void explain_queue(FutureSnapshot& snapshot, const UserId& user, const ModelBackends& backends,
                   const OperationBudget& budget);

}  // namespace tuft::control
