// LoraSlots: adapters of one shape side by side at fixed addresses, for products whose shapes and addresses must not
// change from step to step. Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/torch/adapter.h"

namespace tuft::engine::torch {

class LoraSlots {
 public:
  // Has room for `slots` adapters of the shape of `example`.
  LoraSlots(const Adapter& example, int64_t slots, const Placement& placement);
  static int64_t bytes(const Adapter& example, int64_t slots);

  const LoraSpec& spec() const { return spec_; }
  const LoraLayout& layout() const { return layout_; }
  const at::Tensor& factors() const { return memory_; }  // [slots, layout().size()]
  int64_t slots() const { return static_cast<int64_t>(held_.size()); }
  // Returns a slot for each of `adapters`, and copies in those whose current version is in no free slot. Null stands
  // for the base model alone, which adds zero. Requires at most slots() adapters; one that is named twice gets two
  // slots. Other adapters may lose their slots.
  std::vector<int64_t> load(std::span<Adapter* const> adapters);

 private:
  LoraSpec spec_;
  LoraLayout layout_;
  at::Tensor memory_;
  std::vector<uint64_t> held_;  // versions; 0: zeros
};

}  // namespace tuft::engine::torch
