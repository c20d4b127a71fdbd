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
    case OperationType::kSaveWeightsExternal:
      return "save_weights_external";
    case OperationType::kLoadWeights:
      return "load_weights";
    case OperationType::kSample:
      return "sample";
    case OperationType::kCreateCustomLoss:
      return "create_custom_loss";
    case OperationType::kUnknown:
      break;
  }
  return "unknown";
}

std::optional<OperationType> find_operation(std::string_view name) {
  for (size_t i = 0; i < kOperationTypes; ++i) {
    const auto type = static_cast<OperationType>(i);
    if (operation_name(type) == name) return type;
  }
  return std::nullopt;
}

std::string_view optimizer_name(Optimizer optimizer) {
  return optimizer == Optimizer::kDimuon ? "dimuon" : "adamw";
}

std::optional<Optimizer> find_optimizer(std::string_view name) {
  for (const Optimizer optimizer : {Optimizer::kAdamW, Optimizer::kDimuon}) {
    if (optimizer_name(optimizer) == name) return optimizer;
  }
  return std::nullopt;
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kSuccess:
      return "success";
    case FinishReason::kErrored:
      return "errored";
    case FinishReason::kInterrupted:
      return "interrupted";
  }
  return "success";
}

std::optional<FinishReason> finish_reason_of(std::string_view name) {
  for (size_t i = 0; i < kFinishReasons; ++i) {
    const auto reason = static_cast<FinishReason>(i);
    if (finish_reason_name(reason) == name) return reason;
  }
  return std::nullopt;
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
