#include "control/observe/advice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "control/observe/percent.h"

namespace tuft::control {
namespace {

constexpr std::string_view kTimeNames[kTimeKinds] = {"passes", "optimizer", "waiting", "saving", "idle"};
// Fewer steps may all be the first ones, which are unlike the others.
constexpr int64_t kStepsMin = 3;
constexpr double kWorthSaying = 0.15;

std::string sentence(TimeKind kind, const std::string& share) {
  switch (kind) {
    case TimeKind::kIdle:
      return share + " of the time no request was waiting: send the next batch before fetching the result.";
    case TimeKind::kWaiting:
      return share +
             " of the time its operations waited for their turn at the base model: other work was ahead of them. Send "
             "more datums in one request, and submit forward_backward and optim_step together.";
    case TimeKind::kSaving:
      return share +
             " of the time went into saving weights: save less often, or with a sampler save between two full ones.";
    case TimeKind::kOptimizer:
      return share + " of the time went into optimizer steps: train on more datums before each of them.";
    case TimeKind::kPasses:
      break;
  }
  return {};
}

}  // namespace

std::string_view time_kind_name(TimeKind kind) {
  return kTimeNames[static_cast<size_t>(kind)];
}

RunTime time_of(const std::vector<telemetry_store::RunStep>& steps) {
  RunTime time;
  for (const telemetry_store::RunStep& step : steps) {
    if (step.step == 0) continue;
    ++time.steps;
    time.tokens += step.tokens;
    const double parts[kTimeKinds] = {step.pass_seconds, step.step_seconds, step.wait_seconds, step.save_seconds,
                                      step.idle_seconds};
    for (size_t i = 0; i < kTimeKinds; ++i) {
      if (std::isfinite(parts[i]) && parts[i] > 0) time.parts[i] += parts[i];
    }
  }
  time.seconds = std::accumulate(std::begin(time.parts), std::end(time.parts), 0.0);
  return time;
}

std::vector<std::string> advice_for(const RunTime& time, int64_t pass_tokens) {
  if (time.steps < kStepsMin || !(time.seconds > 0)) return {};
  std::vector<std::pair<double, TimeKind>> shares;
  for (const TimeKind kind : {TimeKind::kIdle, TimeKind::kWaiting, TimeKind::kSaving, TimeKind::kOptimizer}) {
    shares.emplace_back(time.parts[static_cast<size_t>(kind)] / time.seconds, kind);
  }
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> advice;
  for (const auto& [share, kind] : shares) {
    if (share >= kWorthSaying) advice.push_back(sentence(kind, percent(share)));
  }
  const int64_t tokens = time.tokens / time.steps;
  if (pass_tokens > 0 && tokens > 0 && tokens * 2 <= pass_tokens) {
    advice.push_back("A step has " + std::to_string(tokens) + " tokens, and one pass has room for " +
                     std::to_string(pass_tokens) + ": larger batches cost hardly more time.");
  }
  if (advice.empty()) {
    advice.push_back(percent(time.parts[static_cast<size_t>(TimeKind::kPasses)] / time.seconds) +
                     " of the time the engine computed its passes: nothing else is in the way.");
  }
  return advice;
}

}  // namespace tuft::control
