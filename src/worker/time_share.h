// How the engine's time is split between training and sampling while both have work. Confined to one thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tuft::worker {

// A piece of work cannot be cut: a long training pass is paid back with sampling steps, and the other way round. What
// is owed never exceeds `debt_max` of the other's time, so that neither waits longer than that and one piece of the
// other.
class TimeShare {
 public:
  enum class Turn : uint8_t { kTraining, kSampling };

  // `training_share` of the time in (0, 1) goes to training.
  TimeShare(double training_share, Nanos debt_max);

  // Whose turn it is; one of them has work. Who had none owes nothing and is owed nothing.
  Turn next(bool training, bool sampling);
  void spent(Turn turn, Nanos duration);

 private:
  const double training_share_;
  const double ahead_max_;
  double ahead_ = 0;  // of training: time that it had beyond its share, in ns of sampling's share
};

}  // namespace tuft::worker
