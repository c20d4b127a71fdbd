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
  const Placement& placement() const { return placement_; }
  int64_t slots() const { return static_cast<int64_t>(held_.size()); }
  // Copies in the adapters whose current version is in no slot, and returns the slot of each. Requires at most slots()
  // adapters. Other adapters may lose their slots.
  std::vector<int64_t> load(std::span<Adapter* const> adapters);

  // Return the scaled A, [slots, rank, in], and B, [slots, out, rank], in the type of activations; undefined if these
  // adapters have no such layer.
  at::Tensor a(TargetModule module, int layer) const;
  at::Tensor b(TargetModule module, int layer) const;

 private:
  at::Tensor view(int64_t offset, int64_t rows, int64_t columns) const;

  Placement placement_;
  LoraSpec spec_;
  int layers_ = 0;
  std::vector<LoraPair> pairs_;  // layers and offsets; no tensors
  at::Tensor memory_;            // [slots, parameters]
  std::vector<uint64_t> held_;   // versions; 0: empty
};

}  // namespace tuft::engine::torch
