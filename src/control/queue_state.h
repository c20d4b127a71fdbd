// Why a pending operation is not done yet, told truthfully to its client.
#pragma once

#include "control/future_store.h"
#include "control/model_backend.h"
#include "control/types.h"

namespace tuft::control {

// Fills queue_state and queue_reason of a pending snapshot; leaves others alone.
void explain_queue(FutureSnapshot& snapshot, const UserId& user, const ModelBackends& backends,
                   const FutureStore& futures);

}  // namespace tuft::control
