// DeviceClock: measures the time of work on the device without waiting for it. It puts events into the device's queue
// around a piece of work and reads them after they have passed. On a CPU, and with a libtorch before 2.4, it reads the
// clock of the machine. Internal.
#pragma once

#include <deque>
#include <memory>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/torch/device.h"

namespace tuft::engine::torch {

class DeviceClock {
 public:
  explicit DeviceClock(const Placement& placement);
  ~DeviceClock();

  // Measures the work launched during its lifetime. At most one may exist at a time.
  class Scope {
   public:
    Scope(DeviceClock& clock, Nanos DeviceTimes::*kind);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeviceClock& clock_;
    Nanos DeviceTimes::*kind_;
    Nanos begin_ = 0;
  };

  // Returns the sums over the work that has ended.
  const DeviceTimes& times();

 private:
  struct Piece;
  void collect();

  const Placement placement_;
  bool events_ = false;
  DeviceTimes times_;
  std::deque<std::unique_ptr<Piece>> pieces_;  // begun and not yet counted, in order
};

}  // namespace tuft::engine::torch
