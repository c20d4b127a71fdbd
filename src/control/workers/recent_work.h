// How much was done lately: a sum that halves every minute.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::control {

// Thread-safe.
class RecentWork {
 public:
  void add(int64_t amount, Nanos now) {
    MutexLock lock(mutex_);
    sum_ = faded(now) + static_cast<double>(amount);
    at_ = now;
  }
  double at(Nanos now) const {
    MutexLock lock(mutex_);
    return faded(now);
  }

 private:
  static constexpr Nanos kHalfLife = 60 * kSecond;

  double faded(Nanos now) const TUFT_REQUIRES(mutex_) {
    return sum_ * std::exp2(-static_cast<double>(now - at_) / static_cast<double>(kHalfLife));
  }

  mutable Mutex mutex_;
  double sum_ TUFT_GUARDED_BY(mutex_) = 0;
  Nanos at_ TUFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace tuft::control
