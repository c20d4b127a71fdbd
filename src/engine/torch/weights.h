// The base model on the device. Products that read the same input are one weight: q, k and v; gate and up. Internal.
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
  at::Tensor q_norm;  // undefined without QK-norm
  at::Tensor k_norm;
  Linear qkv, o, gate_up, down;
};

struct Weights {
  std::vector<BlockWeights> blocks;
  at::Tensor final_norm;
  at::Tensor head;       // [vocab, hidden]
  at::Tensor embedding;  // the same where they are tied
};

// bf16 where asked for, or where the file is bf16 and nothing else is asked for; else f32.
Result<at::ScalarType> weights_type(const TensorSource& source, WeightsDtype asked);

// Errors as native/weights.h has them; kInvalidArgument with the sum written out where they do not fit on the device.
// May throw what libtorch throws.
Result<Weights> load_weights(const ModelSpec& spec, const TensorSource& source, const Place& place);

}  // namespace tuft::engine::torch
