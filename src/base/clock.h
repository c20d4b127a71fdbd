// The clock interface. Code that depends on time takes a Clock; tests use a FakeClock.
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
  // Nanoseconds since an arbitrary point; never decreases. For durations and deadlines within one process.
  virtual Nanos monotonic() const = 0;
  // Nanoseconds since 1970-01-01 UTC. For time stamps that leave the process; it may jump, so do not compute durations.
  virtual Nanos wall() const = 0;
};

// The clock of the operating system.
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
