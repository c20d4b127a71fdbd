// LoraLeaves: the adapters' matrices as leaves of the gradient graph of one block or of the head. All adapters of a
// product share one leaf for A and one for B, in the type of activations, so that a pass with many adapters launches as
// many operations as one with a single adapter. Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/torch/adapter.h"

namespace tuft::engine::torch {

// The matrices of one layer of several adapters, in the type of activations.
struct LoraFactors {
  at::Tensor a;  // with the scale: [adapters, rank, in], or [rank, in] of a single adapter
  at::Tensor b;  // [adapters, out, rank], or [out, rank]
};
// Requires adapters of one shape that have the layer.
LoraFactors factors_of(std::span<Adapter* const> adapters, TargetModule module, int layer);

class LoraLeaves {
 public:
  // Returns factors_of() as new leaves. Requires that the adapters are not changed before collect().
  LoraFactors make(std::span<Adapter* const> adapters, TargetModule module, int layer);
  // Adds the gradients of all leaves to those of their adapters, which prepare_gradients() has made, and forgets the
  // leaves. Call after backward().
  void collect();

 private:
  struct Entry {
    LoraFactors leaves;
    std::vector<const LoraPair*> pairs;  // of each adapter
    std::vector<float> scales;
  };
  std::vector<Entry> entries_;
};

}  // namespace tuft::engine::torch
