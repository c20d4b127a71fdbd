// The lowest rate at which a client may read an answer.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace tuft::api {

// A client may stop reading for limits.answer_stall_seconds. All its stops together may take so long, too, and as much
// time as its bytes take at limits.answer_rate_min. The time in which the server has nothing to send does not count.
class WritePace {
 public:
  WritePace(int stall_seconds, int64_t bytes_per_second)
      : stall_(stall_seconds * kSecond), bytes_per_second_(bytes_per_second) {}

  // A new answer begins.
  void begin() { waited_ = sent_ = 0; }
  // The client took `bytes` after the server had waited for `time`.
  void took(int64_t bytes, Nanos time) {
    sent_ += bytes;
    waited_ += time;
  }
  // Returns how long the server waits for the client to take the next bytes.
  Nanos left() const {
    const double earned = static_cast<double>(sent_) / static_cast<double>(bytes_per_second_) * kSecond;
    return std::clamp<Nanos>(stall_ + static_cast<Nanos>(earned) - waited_, 0, stall_);
  }

 private:
  const Nanos stall_;
  const int64_t bytes_per_second_;
  int64_t sent_ = 0;
  Nanos waited_ = 0;
};

}  // namespace tuft::api
