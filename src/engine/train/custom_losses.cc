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

void CustomLosses::evaluate(const PassPlan& plan, std::span<const float> logprobs) {
  outcomes_.clear();
  next_ = 0;
  const std::vector<Work> work = work_of(plan, logprobs);
  if (work.empty()) return;
  outcomes_.assign(work.size(), loss_graph::Outcome());
  const auto run = [&](int number, int /*thread*/) {
    const Work& one = work[static_cast<size_t>(number)];
    outcomes_[static_cast<size_t>(number)] = one.task->evaluate(one.datum, one.logprobs);
  };
  if (runner_ && work.size() > 1) return runner_(static_cast<int>(work.size()), run);
  for (size_t i = 0; i < work.size(); ++i) run(static_cast<int>(i), 0);
}

}  // namespace tuft::engine
