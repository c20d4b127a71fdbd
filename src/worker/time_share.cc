#include "worker/time_share.h"

#include <algorithm>

#include "base/check.h"

namespace tuft::worker {

TimeShare::TimeShare(double first_share, Nanos debt_max)
    : first_share_(first_share), ahead_max_(static_cast<double>(debt_max)) {
  TUFT_CHECK(first_share > 0 && first_share < 1, "both have a share");
}

TimeShare::Turn TimeShare::next(bool first, bool second) {
  if (first && second) return ahead_ > 0 ? Turn::kSecond : Turn::kFirst;
  ahead_ = 0;
  return first ? Turn::kFirst : Turn::kSecond;
}

void TimeShare::spent(Turn turn, Nanos duration) {
  const auto time = static_cast<double>(duration);
  ahead_ += turn == Turn::kFirst ? time * (1 - first_share_) : -time * first_share_;
  // To pay a debt of the first, the second runs for debt / first_share; the reverse holds for the first.
  ahead_ = std::clamp(ahead_, -ahead_max_ * (1 - first_share_), ahead_max_ * first_share_);
}

}  // namespace tuft::worker
