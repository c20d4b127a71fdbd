#include "control/training/step_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tuft::control {

double StepSpan::loss() const {
  return weight_sum > 0 ? loss_sum / weight_sum : std::numeric_limits<double>::quiet_NaN();
}

void StepClock::advance(Nanos now) {
  if (!began_) last_ = now;
  began_ = true;
  const Nanos passed = std::max<Nanos>(now - last_, 0);
  last_ = std::max(last_, now);
  if (executes_) {
    executing_ += passed;
  } else if (there_ > 0) {
    span_.waiting += passed;
  } else {
    span_.idle += passed;
  }
}

void StepClock::book(Work work, Nanos waited) {
  const Nanos waiting = std::clamp<Nanos>(waited, 0, executing_);
  const Nanos worked = std::exchange(executing_, 0) - waiting;
  span_.waiting += waiting;
  switch (work) {
    case Work::kPass:
      span_.passes += worked;
      break;
    case Work::kStep:
      span_.step += worked;
      break;
    case Work::kSave:
      span_.saves += worked;
      break;
    case Work::kCreate:
      span_ = {};
      break;
    case Work::kOther:
      span_.waiting += worked;
      break;
  }
}

void StepClock::placed(Nanos now) {
  advance(now);
  ++there_;
}

void StepClock::dropped(Nanos now) {
  advance(now);
  there_ = std::max<int64_t>(there_ - 1, 0);
}

void StepClock::started(Nanos now) {
  advance(now);
  executes_ = true;
}

void StepClock::ended(Work work, Nanos waited, Nanos now) {
  advance(now);
  book(work, waited);
  executes_ = false;
  there_ = std::max<int64_t>(there_ - 1, 0);
}

void StepClock::add_pass(std::optional<double> loss_sum, double weight_sum, int64_t tokens) {
  span_.tokens += tokens;
  if (!loss_sum || !std::isfinite(*loss_sum) || !(weight_sum > 0)) return;
  span_.loss_sum += *loss_sum;
  span_.weight_sum += weight_sum;
}

StepSpan StepClock::end_step(Nanos waited, Nanos now) {
  advance(now);
  book(Work::kStep, waited);
  return std::exchange(span_, {});
}

}  // namespace tuft::control
