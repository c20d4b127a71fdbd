#include "engine/torch/lora_slots.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "base/check.h"

namespace tuft::engine::torch {

LoraSlots::LoraSlots(const Adapter& example, int64_t slots, const Placement& placement)
    : spec_(example.spec()),
      layout_(example.layout()),
      memory_(at::zeros({slots, layout_.size()}, placement.active())),
      held_(static_cast<size_t>(slots)) {}

int64_t LoraSlots::bytes(const Adapter& example, int64_t slots) {
  return slots * static_cast<int64_t>(example.factors().nbytes());
}

std::vector<int64_t> LoraSlots::load(std::span<Adapter* const> adapters) {
  TUFT_CHECK(adapters.size() <= held_.size(), "more adapters than slots");
  const auto version_of = [](const Adapter* adapter) { return adapter == nullptr ? 0 : adapter->version(); };
  std::vector<int64_t> places(adapters.size(), -1);
  std::vector<bool> taken(held_.size(), false);
  for (size_t i = 0; i < adapters.size(); ++i) {
    for (size_t slot = 0; slot < held_.size() && places[i] < 0; ++slot) {
      if (taken[slot] || held_[slot] != version_of(adapters[i])) continue;
      places[i] = static_cast<int64_t>(slot);
      taken[slot] = true;
    }
  }
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (places[i] >= 0) continue;
    const auto free = std::find(taken.begin(), taken.end(), false);
    *free = true;
    places[i] = free - taken.begin();
    const at::Tensor slot = memory_.select(0, places[i]);
    if (adapters[i] == nullptr) {
      slot.zero_();
    } else {
      slot.copy_(adapters[i]->factors());
    }
    held_[static_cast<size_t>(places[i])] = version_of(adapters[i]);
  }
  return places;
}

}  // namespace tuft::engine::torch
