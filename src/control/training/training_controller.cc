#include "control/training/training_controller.h"

namespace tuft::control {

std::shared_ptr<TrainingController> TrainingController::create(const Parts& parts) {
  std::shared_ptr<TrainingController> controller(new TrainingController(parts));
  controller->lifetime_.begin(controller);
  return controller;
}

TrainingController::TrainingController(const Parts& parts)
    : parts_(parts),
      runs_(parts_.config.limits.runs_per_user_max, parts_.sessions, parts_.checkpoints),
      telemetry_(parts_.clock, parts_.usage, parts_.config.telemetry.tenant_label, parts_.telemetry),
      calls_(parts_.futures, cut_, lifetime_),
      executor_(parts_.config.limits, parts_.clock, parts_.futures, parts_.persistence, runs_, lifetime_),
      journals_(parts_.config.limits.journal_bytes_per_user_max),
      writer_({parts_.config, parts_.clock, parts_.checkpoints, parts_.disk, parts_.sessions,
               parts_.sampling->samplers(), calls_, lifetime_}),
      saver_({parts_.clock, parts_.persistence, *parts_.sampling, executor_, calls_, cut_, writer_, telemetry_}),
      loader_(parts_.config.checkpoint_dir, parts_.checkpoints, executor_, calls_, telemetry_),
      operations_(executor_, calls_, telemetry_, loader_, journals_),
      expiry_({parts_.config.limits, parts_.clock, parts_.sessions, parts_.persistence, runs_, executor_}),
      restorer_(parts_.clock, parts_.backends, parts_.persistence, runs_, executor_, calls_, expiry_, lifetime_),
      resumption_({parts_.clock, parts_.futures, runs_, executor_, restorer_, cut_, lifetime_, parts_.persistence}),
      drain_(parts_.clock, runs_, executor_, parts_.checkpoints),
      placement_(parts_.clock, parts_.backends, runs_, executor_, drain_, restorer_, resumption_),
      custom_losses_(parts_.config.limits, parts_.sessions, parts_.futures, parts_.persistence),
      submissions_({parts_.config.limits, parts_.clock, parts_.backends, parts_.sessions, parts_.futures, runs_,
                    executor_, loader_, custom_losses_, parts_.sampling->records()}),
      activity_(parts_.clock, parts_.backends, runs_) {
  using Type = OperationType;
  executor_.set_handler(
      {Type::kCreateModel, Type::kUnloadModel, Type::kForward, Type::kForwardBackward, Type::kOptimStep}, operations_);
  executor_.set_handler({Type::kSaveWeights, Type::kSaveWeightsForSampler, Type::kSaveWeightsExternal}, saver_);
  executor_.set_handler({Type::kLoadWeights}, loader_);
  executor_.on_idle([this](const RunPtr& run) {
    expiry_.go_on(run);
    restorer_.go_on(run);
    drain_.go_on(run);
    placement_.go_on(run);
  });
}

}  // namespace tuft::control
