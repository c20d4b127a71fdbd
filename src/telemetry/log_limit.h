// Keeps a flood of one event from drowning the rest. Internal to telemetry.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace tuft::telemetry::internal {

// 1000 records of an event at once, then 100 a second. An event is known by the address of its name; of names beyond
// the first 512 none is limited. Thread-safe, without a lock.
class LogLimit {
 public:
  struct Verdict {
    bool pass = true;
    // Left out since this was last said, which is every 10 s at most; the record that passes is the one to say it with.
    uint64_t suppressed = 0;
  };
  Verdict ask(const char* event, Nanos now);

 private:
  struct Slot {
    std::atomic<const char*> event{nullptr};
    std::atomic<Nanos> full_until{0};  // the time at which nothing would be left of what passed
    std::atomic<uint64_t> suppressed{0};
    std::atomic<Nanos> said{0};
  };

  Slot* find(const char* event);

  std::array<Slot, 1024> slots_;  // at most half full
  std::atomic<size_t> used_{0};
};

}  // namespace tuft::telemetry::internal
