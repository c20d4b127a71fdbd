#include "engine/train/custom_losses.h"

namespace tuft::engine {
namespace {

struct Work {
  const TrainTask* task = nullptr;
  size_t datum = 0;
  std::span<const float> logprobs;
};

std::vector<Work> work_of(const PassPlan& plan, std::span<const float> logprobs) {
  std::vector<Work> work;
  size_t at = 0;
  for (const Slice& slice : plan.slices) {
    const TrainTask& task = *slice.queued().task;
    for (size_t datum = slice.begin; datum < slice.end; ++datum) {
      const size_t count = task.targets_of(datum);
      if (task.has_custom_loss()) work.push_back({&task, datum, logprobs.subspan(at, count)});
      at += count;
    }
  }
  return work;
}

}  // namespace

std::vector<Result<loss_graph::Outcome>> evaluate_custom_losses(const PassPlan& plan, std::span<const float> logprobs,
                                                                const TaskRunner& runner) {
  const std::vector<Work> work = work_of(plan, logprobs);
  std::vector<Result<loss_graph::Outcome>> outcomes(work.size(), loss_graph::Outcome());
  const auto run = [&](int number, int /*thread*/) {
    const Work& one = work[static_cast<size_t>(number)];
    outcomes[static_cast<size_t>(number)] = one.task->evaluate(one.datum, one.logprobs);
  };
  if (runner && work.size() > 1) {
    runner(static_cast<int>(work.size()), run);
  } else {
    for (size_t i = 0; i < work.size(); ++i) run(static_cast<int>(i), 0);
  }
  return outcomes;
}

}  // namespace tuft::engine
