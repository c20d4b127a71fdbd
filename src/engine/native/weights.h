// The base model in memory: one packed copy that serves training and sampling.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "engine/model_spec.h"
#include "engine/native/buffer.h"
#include "engine/native/gemm.h"
#include "engine/native/native_engine.h"
#include "engine/weights/tensor_source.h"

namespace tuft::engine::native {

// Memory for matrices side by side on huge pages. A step reads all of them from end to end, and with 4 KB pages the
// hardware's prefetching would stop at the end of each page.
class WeightMemory {
 public:
  // Returns undefined memory, 64-byte aligned, readable for kSlack bytes past its end. Throws std::bad_alloc.
  void* take(size_t bytes);

 private:
  std::vector<Buffer<std::byte>> chunks_;
  size_t used_ = 0;  // of the last chunk
};

// The weight [out, in] of a linear layer as [ceil(out / 16)][in][16], f32 or bf16, and its bias (may be empty).
struct Linear {
  int in = 0;
  int out = 0;
  bool bf16 = false;
  const void* panels = nullptr;
  Floats bias;

  const float* bias_data() const { return bias.empty() ? nullptr : bias.data(); }
  Right forward() const { return {Right::Form::kPanels, panels, bf16, in, out}; }
  Right backward() const { return {Right::Form::kReverse, panels, bf16, out, in}; }
  // Copies one row of the weight as f32: the embedding of a token if the embeddings are tied.
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
  WeightMemory memory;  // of all matrices
  bool bf16 = false;
  std::vector<BlockWeights> blocks;
  Floats final_norm;
  Linear head;  // also the embedding if they are tied
  // The embedding, row-major [vocab, hidden]; null if it is tied to `head`. It is only read by row.
  const void* embedding = nullptr;

  void embed(int32_t token, int hidden, float* to) const;
};

// Packs every tensor that the model needs. Returns kDataLoss for a shape that contradicts config.json, kNotFound for a
// missing tensor, kUnimplemented for an unsupported stored type.
Result<Weights> load_weights(const ModelSpec& spec, const TensorSource& source, WeightsDtype dtype, ThreadPool& pool);

}  // namespace tuft::engine::native
