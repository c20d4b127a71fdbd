#include "engine/torch/weights.h"

#include <cstring>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "base/error.h"

namespace tuft::engine::torch {
namespace {

at::ScalarType type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBfloat16:
      return at::kBFloat16;
    case Dtype::kFloat16:
      return at::kHalf;
    default:
      return at::kFloat;
  }
}

class Loader {
 public:
  Loader(const TensorSource& source, const Placement& placement) : source_(source), placement_(placement) {}

  // Reads into rows [row, row + shape[0]) of `to`, with its type and device.
  Status read(const std::string& name, const std::vector<int64_t>& shape, int64_t row, at::Tensor& to) const {
    TUFT_ASSIGN(const TensorView view, find_weight(source_, name, shape));
    // Copied first, because the data of a file may be unaligned.
    const at::Tensor host = at::empty(shape, at::TensorOptions().dtype(type_of(view.dtype)));
    std::memcpy(host.data_ptr(), view.data.data(), view.data.size());
    to.narrow(0, row, shape[0]).copy_(host);
    return {};
  }

  Status vector(const std::string& name, int64_t size, at::Tensor& to) const {
    to = at::empty({size}, placement_.f32());
    return read(name, {size}, 0, to);
  }

  Status matrix(const std::string& name, int64_t rows, int64_t columns, at::Tensor& to) const {
    to = at::empty({rows, columns}, at::TensorOptions().device(placement_.device).dtype(placement_.weights));
    return read(name, {rows, columns}, 0, to);
  }

  struct Part {
    std::string name;
    int64_t out;
  };
  // Concatenates the rows of several layers that read the same input.
  Status linear(const std::vector<Part>& parts, int64_t in, bool bias, Linear& to) const {
    int64_t out = 0;
    for (const Part& part : parts) out += part.out;
    to.weight = at::empty({out, in}, at::TensorOptions().device(placement_.device).dtype(placement_.weights));
    if (bias) to.bias = at::empty({out}, placement_.active());
    int64_t row = 0;
    for (const Part& part : parts) {
      TUFT_TRY(read(part.name + ".weight", {part.out, in}, row, to.weight));
      if (bias) TUFT_TRY(read(part.name + ".bias", {part.out}, row, to.bias));
      row += part.out;
    }
    return {};
  }

 private:
  const TensorSource& source_;
  const Placement& placement_;
};

Status load_block(const ModelSpec& spec, const Loader& loader, int index, BlockWeights& to) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const int64_t hidden = spec.hidden_size;
  const int64_t q = int64_t{spec.heads} * spec.head_dim;
  const int64_t kv = int64_t{spec.kv_heads} * spec.head_dim;
  const int64_t inner = spec.intermediate_size;
  TUFT_TRY(loader.vector(prefix + "input_layernorm.weight", hidden, to.attention_norm));
  TUFT_TRY(loader.vector(prefix + "post_attention_layernorm.weight", hidden, to.mlp_norm));
  if (spec.qk_norm) {
    at::Tensor q_norm;
    at::Tensor k_norm;
    TUFT_TRY(loader.vector(prefix + "self_attn.q_norm.weight", spec.head_dim, q_norm));
    TUFT_TRY(loader.vector(prefix + "self_attn.k_norm.weight", spec.head_dim, k_norm));
    to.qk_norm = at::cat({q_norm.expand({spec.heads, spec.head_dim}), k_norm.expand({spec.kv_heads, spec.head_dim})});
  }
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  TUFT_TRY(loader.linear({{attention + "q_proj", q}, {attention + "k_proj", kv}, {attention + "v_proj", kv}}, hidden,
                         spec.qkv_bias, to.qkv));
  TUFT_TRY(loader.linear({{attention + "o_proj", hidden}}, q, spec.o_bias, to.o));
  TUFT_TRY(loader.linear({{mlp + "gate_proj", inner}, {mlp + "up_proj", inner}}, hidden, spec.mlp_bias, to.gate_up));
  TUFT_TRY(loader.linear({{mlp + "down_proj", hidden}}, inner, spec.mlp_bias, to.down));
  return {};
}

Status check_room(const ModelSpec& spec, const Placement& placement) {
  const auto free = free_memory(placement.device);
  const int64_t width = placement.weights == at::kBFloat16 ? 2 : 4;
  const int64_t bytes = spec.parameters() * width;
  if (!free || bytes <= *free) return {};
  return invalid_argument("the base model's weights do not fit on " + placement.device.str() + ": " +
                              std::to_string(spec.parameters()) + " parameters x " + std::to_string(width) +
                              " bytes = " + std::to_string(bytes) + " bytes, of which " + std::to_string(*free) +
                              " are free: use another device, a smaller model, or weights_dtype bf16",
                          "memory_plan");
}

}  // namespace

Result<at::ScalarType> weights_type(const TensorSource& source, WeightsDtype asked) {
  TUFT_ASSIGN(const TensorView view, source.find("model.embed_tokens.weight"));
  const bool bf16 =
      asked == WeightsDtype::kBfloat16 || (asked == WeightsDtype::kAuto && view.dtype == Dtype::kBfloat16);
  return bf16 ? at::kBFloat16 : at::kFloat;
}

Result<Weights> load_weights(const ModelSpec& spec, const TensorSource& source, const Placement& placement) {
  TUFT_TRY(check_room(spec, placement));
  const Loader loader(source, placement);
  Weights weights;
  weights.blocks.resize(static_cast<size_t>(spec.layers));
  for (int i = 0; i < spec.layers; ++i) {
    TUFT_TRY(load_block(spec, loader, i, weights.blocks[static_cast<size_t>(i)]));
  }
  TUFT_TRY(loader.vector("model.norm.weight", spec.hidden_size, weights.final_norm));
  TUFT_TRY(loader.matrix("model.embed_tokens.weight", spec.vocab_size, spec.hidden_size, weights.embedding));
  weights.head = weights.embedding;
  if (!spec.tie_word_embeddings) {
    TUFT_TRY(loader.matrix("lm_head.weight", spec.vocab_size, spec.hidden_size, weights.head));
  }
  return weights;
}

}  // namespace tuft::engine::torch
