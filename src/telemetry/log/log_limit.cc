#include "telemetry/log/log_limit.h"

#include <algorithm>
#include <cstddef>

namespace tuft::telemetry::internal {
namespace {

constexpr Nanos kCost = kSecond / 100;
constexpr Nanos kBurst = 1000 * kCost;
constexpr Nanos kSayInterval = 10 * kSecond;

}  // namespace

LogLimit::Slot* LogLimit::find(const char* event) {
  const size_t mask = slots_.size() - 1;
  size_t index = (reinterpret_cast<uintptr_t>(event) * 0x9e3779b97f4a7c15ULL) >> 54;
  for (;; ++index) {
    Slot& slot = slots_[index & mask];
    const char* owner = slot.event.load(std::memory_order_acquire);
    if (owner == event) return &slot;
    if (owner != nullptr) continue;
    if (used_.load(std::memory_order_relaxed) >= slots_.size() / 2) return nullptr;
    if (slot.event.compare_exchange_strong(owner, event)) {
      used_.fetch_add(1, std::memory_order_relaxed);
      return &slot;
    }
    if (owner == event) return &slot;
  }
}

LogLimit::Verdict LogLimit::ask(const char* event, Nanos now) {
  Slot* const slot = find(event);
  if (slot == nullptr) return {};
  Nanos until = slot->full_until.load(std::memory_order_relaxed);
  Nanos next = 0;
  do {
    next = std::max(until, now) + kCost;
    if (next > now + kBurst) {
      slot->suppressed.fetch_add(1, std::memory_order_relaxed);
      return {.pass = false};
    }
  } while (!slot->full_until.compare_exchange_weak(until, next, std::memory_order_relaxed));
  if (slot->suppressed.load(std::memory_order_relaxed) == 0) return {};
  Nanos said = slot->said.load(std::memory_order_relaxed);
  if (said != 0 && now - said < kSayInterval) return {};
  if (!slot->said.compare_exchange_strong(said, now, std::memory_order_relaxed)) return {};
  return {.suppressed = slot->suppressed.exchange(0, std::memory_order_relaxed)};
}

}  // namespace tuft::telemetry::internal
