// Adapters of one shape side by side in memory that stays where it is: for products whose shapes and addresses may not
// change from step to step. Internal. Functions may throw what libtorch throws.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/torch/adapter.h"

namespace tuft::engine::torch {

class LoraSlots {
 public:
  // Room for `slots` adapters of the shape of `example`.
  LoraSlots(const Adapter& example, int64_t slots, const Place& place);
  static int64_t bytes(const Adapter& example, int64_t slots);

  const LoraSpec& spec() const { return spec_; }
  const Place& place() const { return place_; }
  int64_t slots() const { return static_cast<int64_t>(held_.size()); }
  // Copies those in that are not there as they are now, and gives the slot of each. No more of them than slots; others
  // lose their slot.
  std::vector<int64_t> load(std::span<Adapter* const> adapters);

  // A, scaled, is [slots, rank, in] and B [slots, out, rank], both in the activations' type; undefined where these
  // adapters have none.
  at::Tensor a(Site site, int layer) const;
  at::Tensor b(Site site, int layer) const;

 private:
  at::Tensor view(int64_t offset, int64_t rows, int64_t columns) const;

  Place place_;
  LoraSpec spec_;
  int layers_ = 0;
  std::vector<LoraPair> pairs_;  // places and offsets; no tensors
  at::Tensor memory_;            // [slots, parameters]
  std::vector<uint64_t> held_;   // versions; 0: none
};

}  // namespace tuft::engine::torch
