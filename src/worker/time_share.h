// TimeShare: splits the time of the engine between training and sampling while both have work. Confined to one thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tuft::worker {

// A piece of work cannot be interrupted: a long training pass is paid back with sampling steps, and the other way
// round. The debt never exceeds `debt_max`, so that neither waits longer than that and one piece of the other.
class TimeShare {
 public:
  enum class Turn : uint8_t { kTraining, kSampling };

  // `training_share` is the part of the time that goes to training, in (0, 1).
  TimeShare(double training_share, Nanos debt_max);

  // Returns whose turn it is. Requires that one of them has work. Forgets the debt while only one has work.
  Turn next(bool training, bool sampling);
  void spent(Turn turn, Nanos duration);

 private:
  const double training_share_;
  const double ahead_max_;
  double ahead_ = 0;  // time of training beyond its share, in ns of the share of sampling
};

}  // namespace tuft::worker
