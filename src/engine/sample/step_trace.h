// StepTrace: the span engine.step of one step of the sampler. One step in kEvery has a span, beginning with the first,
// and each step that takes much longer than others of its phase. The span is a trace of its own without ids of tenants:
// it has counts, and links to the spans of the requests in the step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "engine/decode_engine.h"
#include "engine/sample/newest_mean.h"
#include "engine/sample/request_state.h"
#include "engine/sample/step_metrics.h"

namespace tuft::engine {

// Confined to the engine thread.
class StepTrace {
 public:
  static constexpr int kEvery = 128;
  // A step is slow if it takes kSlowFactor times the mean of its phase, which must be full. Spans of slow steps are at
  // least kSlowPause steps apart.
  static constexpr double kSlowFactor = 4;
  static constexpr int kSlowPause = 16;
  static constexpr size_t kLinksMax = 32;

  explicit StepTrace(std::string base_model) : base_model_(std::move(base_model)) {}

  struct Times {
    Nanos begin = 0;
    Nanos end = 0;
  };
  // To be called after each step, failed or not. `slots` must not be empty.
  void stepped(const StepMetrics::Step& step, std::span<const Slot> slots, const Times& times, const KvUsage& usage,
               const Status& status);

 private:
  bool is_slow(StepPhase phase, Nanos duration);

  const std::string base_model_;
  std::array<NewestMean, kStepPhases> means_;  // of their steps, in ns
  int64_t steps_ = 0;
  int64_t last_slow_ = -kSlowPause;
};

}  // namespace tuft::engine
