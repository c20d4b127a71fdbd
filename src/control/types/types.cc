#include "control/types/types.h"

namespace tuft::control {

std::string_view operation_name(OperationType type) {
  switch (type) {
    case OperationType::kCreateModel:
      return "create_model";
    case OperationType::kUnloadModel:
      return "unload_model";
    case OperationType::kForward:
      return "forward";
    case OperationType::kForwardBackward:
      return "forward_backward";
    case OperationType::kOptimStep:
      return "optim_step";
    case OperationType::kSaveWeights:
      return "save_weights";
    case OperationType::kSaveWeightsForSampler:
      return "save_weights_for_sampler";
    case OperationType::kLoadWeights:
      return "load_weights";
    case OperationType::kSample:
      return "sample";
  }
  return "unknown";
}

std::string_view queue_state_name(QueueState state) {
  switch (state) {
    case QueueState::kActive:
      return "active";
    case QueueState::kPausedCapacity:
      return "paused_capacity";
    case QueueState::kPausedRateLimit:
      return "paused_rate_limit";
  }
  return "active";
}

}  // namespace tuft::control
