// Weights: the base model on the device. Layers that read the same input are one weight: q, k and v; gate and up.
// Internal.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "engine/model_spec.h"
#include "engine/torch/device.h"
#include "engine/weights/tensor_source.h"

namespace tuft::engine::torch {

struct Linear {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // undefined: none
};

struct BlockWeights {
  at::Tensor attention_norm;  // norms are f32
  at::Tensor mlp_norm;
  at::Tensor qk_norm;  // [heads + kv_heads, head_dim]; undefined without QK-norm
  Linear qkv, o, gate_up, down;
};

struct Weights {
  std::vector<BlockWeights> blocks;
  at::Tensor final_norm;
  at::Tensor head;       // [vocab, hidden]
  at::Tensor embedding;  // the same as `head` if they are tied
};

// Returns bf16 if it is requested, or if kAuto is requested and the file is bf16; else f32.
Result<at::ScalarType> weights_type(const TensorSource& source, WeightsDtype asked);

// Returns the errors of native/weights.h, and kInvalidArgument if the weights do not fit on the device. May throw
// libtorch's exceptions.
Result<Weights> load_weights(const ModelSpec& spec, const TensorSource& source, const Placement& placement);

}  // namespace tuft::engine::torch
