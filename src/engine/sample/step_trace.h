// The span engine.step: what one step of the sampler did, for whom. Not of every step: of one in kEvery, the first one
// included, and of those that took much longer than others of their phase. It is a trace of its own that names nobody:
// it carries counts, and links to the spans of the requests in it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/sample/request_state.h"
#include "engine/sample/step_metrics.h"

namespace tuft::engine {

// Confined to the engine thread.
class StepTrace {
 public:
  static constexpr int kEvery = 128;
  // A slow one: over so many times the mean of its phase. Two of them are so many steps apart at least, and the mean is
  // one of so many steps.
  static constexpr double kSlowFactor = 4;
  static constexpr int kSlowPause = 16;
  static constexpr int kSlowAfter = 16;
  static constexpr size_t kLinksMax = 32;

  explicit StepTrace(std::string base_model) : base_model_(std::move(base_model)) {}

  struct Times {
    Nanos begin = 0;
    Nanos end = 0;
  };
  // Of a step that ended, failed or not. `slots` is not empty.
  void stepped(const StepMetrics::Step& step, std::span<const Slot> slots, const Times& times, const KvUsage& usage,
               const Status& status);

 private:
  struct Mean {
    int steps = 0;
    double nanos = 0;
  };

  bool is_slow(StepPhase phase, Nanos duration);

  const std::string base_model_;
  std::array<Mean, kStepPhases> means_;
  int64_t steps_ = 0;
  int64_t last_slow_ = -kSlowPause;
};

}  // namespace tuft::engine
