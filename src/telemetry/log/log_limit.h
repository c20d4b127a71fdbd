// Limits the rate of each log event, so that one event cannot crowd out the others. Internal to telemetry.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace tuft::telemetry::internal {

// Lets 1000 records of an event pass at once, then 100 per second. The address of its name identifies an event. At most
// 512 names are limited; further ones are not. Thread-safe, without a lock.
class LogLimit {
 public:
  struct Verdict {
    bool pass = true;
    // The number of records suppressed since the last report if this record must report it (at most every 10 s); else
    // 0.
    uint64_t suppressed = 0;
  };
  Verdict ask(const char* event, Nanos now);

 private:
  struct Slot {
    std::atomic<const char*> event{nullptr};
    std::atomic<Nanos> full_until{0};  // the time at which the allowance is full again
    std::atomic<uint64_t> suppressed{0};
    std::atomic<Nanos> said{0};
  };

  Slot* find(const char* event);

  std::array<Slot, 1024> slots_;  // at most half full
  std::atomic<size_t> used_{0};
};

}  // namespace tuft::telemetry::internal
