// The base model in memory: one packed copy that serves training and sampling.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model_spec.h"
#include "engine/native/buffer.h"
#include "engine/native/gemm.h"
#include "engine/native/native_engine.h"
#include "engine/weights/tensor_source.h"

namespace tuft::engine::native {

// The weight [out, in] of a linear layer as [ceil(out / 16)][in][16], f32 or bf16, and its bias (or none).
struct Linear {
  int in = 0;
  int out = 0;
  bool bf16 = false;
  Floats panels;
  Buffer<uint16_t> panels16;
  Floats bias;

  const void* data() const { return bf16 ? static_cast<const void*>(panels16.data()) : panels.data(); }
  const float* bias_data() const { return bias.empty() ? nullptr : bias.data(); }
  Right forward() const { return {Right::Form::kPanels, data(), bf16, in, out}; }
  Right backward() const { return {Right::Form::kReverse, data(), bf16, out, in}; }
  // One row of the weight as f32: the embedding of a token where embeddings are tied.
  void copy_row(int row, float* to) const;
};

struct BlockWeights {
  Floats attention_norm;
  Floats mlp_norm;
  Floats q_norm;  // empty without QK-norm
  Floats k_norm;
  Linear q, k, v, o, gate, up, down;
};

struct Weights {
  bool bf16 = false;
  std::vector<BlockWeights> blocks;
  Floats final_norm;
  Linear head;  // also the embedding where they are tied
  // Row-major [vocab, hidden] where they are not: only ever looked up by row.
  Floats embedding;
  Buffer<uint16_t> embedding16;

  void embed(int32_t token, int hidden, float* to) const;
};

// Packs every tensor that the model needs. kDataLoss for a shape that config.json contradicts, kNotFound for a tensor
// that is missing, kUnimplemented for a stored type that we do not read.
Result<Weights> load_weights(const ModelSpec& spec, const TensorSource& source, WeightsDtype dtype, ThreadPool& pool);

}  // namespace tuft::engine::native
