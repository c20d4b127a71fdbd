// How long work takes on the device, without waiting for it: events are put into the device's queue around a piece of
// work and read when they have passed. On a CPU, and with a libtorch before 2.4, the clock of the machine. Internal.
#pragma once

#include <deque>
#include <memory>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/torch/device.h"

namespace tuft::engine::torch {

class DeviceClock {
 public:
  explicit DeviceClock(const Place& place);
  ~DeviceClock();

  // Counts the work of its life. Not copied or moved; one at a time.
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

  // Of what has ended.
  const DeviceTimes& times();

 private:
  struct Piece;
  void collect();

  const Place place_;
  bool events_ = false;
  DeviceTimes times_;
  std::deque<std::unique_ptr<Piece>> pieces_;  // that were begun and not counted, in order
};

}  // namespace tuft::engine::torch
