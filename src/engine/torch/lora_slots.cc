#include "engine/torch/lora_slots.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "base/check.h"

namespace tuft::engine::torch {

LoraSlots::LoraSlots(const Adapter& example, int64_t slots, const Placement& placement)
    : placement_(placement),
      spec_(example.spec()),
      layers_(example.layers()),
      memory_(at::zeros({slots, example.parameters()}, placement.active())),
      held_(static_cast<size_t>(slots)) {
  for (const LoraPair& pair : example.pairs()) {
    LoraPair& own = pairs_.emplace_back();
    static_cast<LoraLayer&>(own) = pair;
    own.offset = pair.offset;
  }
}

int64_t LoraSlots::bytes(const Adapter& example, int64_t slots) {
  return slots * static_cast<int64_t>(example.active().nbytes());
}

std::vector<int64_t> LoraSlots::load(std::span<Adapter* const> adapters) {
  TUFT_CHECK(adapters.size() <= held_.size(), "more adapters than slots");
  std::vector<int64_t> places(adapters.size(), -1);
  std::vector<bool> taken(held_.size(), false);
  for (size_t i = 0; i < adapters.size(); ++i) {
    const auto found = std::find(held_.begin(), held_.end(), adapters[i]->version());
    if (found == held_.end()) continue;
    places[i] = found - held_.begin();
    taken[static_cast<size_t>(places[i])] = true;
  }
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (places[i] >= 0) continue;
    const auto free = std::find(taken.begin(), taken.end(), false);
    *free = true;
    places[i] = free - taken.begin();
    memory_.select(0, places[i]).copy_(adapters[i]->active());
    held_[static_cast<size_t>(places[i])] = adapters[i]->version();
  }
  return places;
}

at::Tensor LoraSlots::view(int64_t offset, int64_t rows, int64_t columns) const {
  return memory_.narrow(1, offset, rows * columns).view({slots(), rows, columns});
}

at::Tensor LoraSlots::a(TargetModule module, int layer) const {
  const int index = lora_layer_index(layers_, spec_, module, layer);
  if (index < 0) return {};
  const LoraPair& pair = pairs_[static_cast<size_t>(index)];
  return view(pair.offset, spec_.rank, pair.in);
}

at::Tensor LoraSlots::b(TargetModule module, int layer) const {
  const int index = lora_layer_index(layers_, spec_, module, layer);
  if (index < 0) return {};
  const LoraPair& pair = pairs_[static_cast<size_t>(index)];
  return view(pair.offset + int64_t{spec_.rank} * pair.in, pair.out, spec_.rank);
}

}  // namespace tuft::engine::torch
