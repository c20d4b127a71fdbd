// What happens when a worker of a base model is ready, comes back, or is told to end: runs and adapters are restored in
// it, or found there again, or saved.
#pragma once

#include <memory>

#include "control/sampling/sampling_controller.h"
#include "control/training/training_controller.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// Call once for each backend, when state is restored. It holds none of the three; events after their end do nothing.
void watch_worker(const ModelBackendPtr& backend, const std::weak_ptr<TrainingController>& weak_training,
                  const std::weak_ptr<SamplingController>& weak_sampling);

}  // namespace tuft::control
