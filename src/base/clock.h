// Time as a port: code that decides by time takes a Clock, and its tests a FakeClock.
#pragma once

#include <atomic>
#include <cstdint>

namespace tuft {

using Nanos = int64_t;
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

inline double to_seconds(Nanos nanos) {
  return static_cast<double>(nanos) * 1e-9;
}

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never runs backwards; its zero means nothing. For durations and deadlines inside one process.
  virtual Nanos monotonic() const = 0;
  // Since 1970-01-01 UTC. For time stamps that leave the process; never subtract two of them.
  virtual Nanos wall() const = 0;
};

// The machine's clock, one for the process.
const Clock& system_clock();

class FakeClock final : public Clock {
 public:
  Nanos monotonic() const override { return now_.load(); }
  Nanos wall() const override { return 1'700'000'000 * kSecond + now_.load(); }
  void advance(Nanos by) { now_ += by; }

 private:
  std::atomic<Nanos> now_{kSecond};
};

}  // namespace tuft
