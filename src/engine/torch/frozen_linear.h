// FrozenLinear: a linear layer of the base model with the products of adapters: y = W x + b + (alpha / rank) B A x. In
// gradient mode it is one node of libtorch's gradient graph, whose backward pass gives the gradient of x and keeps
// those of the factors in the plan (LoraPlan::collect()). Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/torch/lora_plan.h"
#include "engine/torch/weights.h"

namespace tuft::engine::torch {

// What the graph refers to must outlive it.
struct FrozenLinear {
  const Linear* linear = nullptr;
  const LoraPlan* plan = nullptr;
  LoraSite site = LoraSite::kQkv;
  int layer = 0;

  // x is [rows, in], contiguous. Converts a weight of another type than x for each product.
  at::Tensor operator()(const at::Tensor& x) const;
};

}  // namespace tuft::engine::torch
