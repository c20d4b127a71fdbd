#include "engine/torch/device_clock.h"

#include <utility>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace tuft::engine::torch {

struct DeviceClock::Piece {
  Nanos DeviceTimes::*kind;
  c10::Event begin;
  c10::Event end;
};

namespace {

// Limits the memory of events if the device has stopped.
constexpr size_t kPiecesMax = 4096;

void record(c10::Event& event, const c10::Device& device) {
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace

DeviceClock::DeviceClock(const Placement& placement)
    : placement_(placement), events_(TUFT_TORCH_VERSION >= 20400 && placement.is_cuda()) {}

DeviceClock::~DeviceClock() = default;

DeviceClock::Scope::Scope(DeviceClock& clock, Nanos DeviceTimes::*kind) : clock_(clock), kind_(kind) {
  if (!clock_.events_) {
    begin_ = system_clock().monotonic();
    return;
  }
  const c10::DeviceType type = clock_.placement_.device.type();
  constexpr c10::EventFlag kTimed = c10::EventFlag::BACKEND_DEFAULT;
  clock_.pieces_.push_back(std::make_unique<Piece>(Piece{kind, c10::Event(type, kTimed), c10::Event(type, kTimed)}));
  record(clock_.pieces_.back()->begin, clock_.placement_.device);
}

DeviceClock::Scope::~Scope() {
  if (!clock_.events_) {
    clock_.times_.*kind_ += system_clock().monotonic() - begin_;
    return;
  }
  try {
    record(clock_.pieces_.back()->end, clock_.placement_.device);
    clock_.collect();
  } catch (const std::exception&) {
    // If the device fails, the work itself reports it.
    clock_.pieces_.clear();
  }
}

void DeviceClock::collect() {
#if TUFT_TORCH_VERSION >= 20400
  while (!pieces_.empty() && pieces_.front()->end.was_marked_for_recording() && pieces_.front()->end.query()) {
    const Piece& piece = *pieces_.front();
    constexpr double kNanosPerMillisecond = 1e6;
    times_.*piece.kind += static_cast<Nanos>(piece.begin.elapsedTime(piece.end) * kNanosPerMillisecond);
    pieces_.pop_front();
  }
#endif
  while (pieces_.size() > kPiecesMax) pieces_.pop_front();
}

const DeviceTimes& DeviceClock::times() {
  try {
    collect();
  } catch (const std::exception&) {
    pieces_.clear();
  }
  return times_;
}

}  // namespace tuft::engine::torch
