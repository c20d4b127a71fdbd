#include "control/training/activity_log.h"

#include <unordered_set>
#include <utility>

#include "telemetry/log.h"

namespace tuft::control {

void ActivityLog::sweep() {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const Nanos passed = now - last_;
  if (passed < kPeriod) return;
  last_ = now;
  struct Present {
    int64_t runs = 0;
    std::unordered_set<UserId> users;
  };
  std::unordered_map<const ModelFacts*, Present> present;
  for (const RunPtr& run : runs_.all()) {
    Present& of_model = present[&run->backend()->facts()];
    ++of_model.runs;
    of_model.users.insert(run->user);
  }
  for (const ModelPtr& model : backends_.models()) {
    const TrainedTotals totals = model->facts().trained();
    const TrainedTotals before = std::exchange(before_[model.get()], totals);
    const DispatchQueue::Load load = model->training_load();
    const int64_t tokens = totals.tokens - before.tokens;
    const int64_t steps = totals.steps - before.steps;
    if (tokens == 0 && steps == 0 && load.waiting == 0 && load.in_flight == 0) continue;
    const Present& of_model = present[&model->facts()];
    telemetry::log_info("training.activity", "training",
                        {{"tuft.base_model", model->name()},
                         {"tuft.runs", of_model.runs},
                         {"tuft.users", of_model.users.size()},
                         {"tuft.tokens_per_second", static_cast<double>(tokens) / to_seconds(passed)},
                         {"tuft.optim_steps", steps},
                         {"tuft.queue_depth", load.waiting}});
  }
}

}  // namespace tuft::control
