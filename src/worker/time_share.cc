#include "worker/time_share.h"

#include <algorithm>

#include "base/check.h"

namespace tuft::worker {

TimeShare::TimeShare(double training_share, Nanos debt_max)
    : training_share_(training_share), ahead_max_(static_cast<double>(debt_max)) {
  TUFT_CHECK(training_share > 0 && training_share < 1, "both have a share");
}

TimeShare::Turn TimeShare::next(bool training, bool sampling) {
  if (training && sampling) return ahead_ > 0 ? Turn::kSampling : Turn::kTraining;
  ahead_ = 0;
  return training ? Turn::kTraining : Turn::kSampling;
}

void TimeShare::spent(Turn turn, Nanos duration) {
  const auto time = static_cast<double>(duration);
  ahead_ += turn == Turn::kTraining ? time * (1 - training_share_) : -time * training_share_;
  // To pay a debt of training, sampling runs for debt / training_share; the reverse holds for training.
  ahead_ = std::clamp(ahead_, -ahead_max_ * (1 - training_share_), ahead_max_ * training_share_);
}

}  // namespace tuft::worker
