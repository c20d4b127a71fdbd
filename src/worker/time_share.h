// TimeShare: splits the time of the engine between two kinds of work while both wait. Confined to one thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tuft::worker {

// A piece of work cannot be interrupted: a long one is paid back with several short ones of the other kind. The debt
// never exceeds `debt_max`, so that neither waits longer than that and one piece of the other.
class TimeShare {
 public:
  enum class Turn : uint8_t { kFirst, kSecond };

  // `first_share` is the part of the time that goes to the first kind, in (0, 1).
  TimeShare(double first_share, Nanos debt_max);

  // Returns whose turn it is: that of the first if none owes the other anything. Requires that one of them has work.
  // Forgets the debt while only one has work.
  Turn next(bool first, bool second);
  void spent(Turn turn, Nanos duration);

 private:
  const double first_share_;
  const double ahead_max_;
  double ahead_ = 0;  // time of the first beyond its share, in ns of the share of the second
};

}  // namespace tuft::worker
