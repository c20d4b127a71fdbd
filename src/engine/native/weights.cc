#include "engine/native/weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tuft::engine::native {
namespace {

float from_bf16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

float value_at(const void* values, bool bf16, int64_t index) {
  return bf16 ? from_bf16(static_cast<const uint16_t*>(values)[index]) : static_cast<const float*>(values)[index];
}

// Rounds to nearest, ties to even; NaN stays NaN.
uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float from_half(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000U) << 16;
  const uint32_t exponent = (value >> 10) & 0x1FU;
  const uint32_t mantissa = value & 0x3FFU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = static_cast<float>(mantissa) * 0x1p-24F;
  return sign != 0 ? -tiny : tiny;
}

// Reads stored values as f32. The data of a file may be unaligned.
class Reader {
 public:
  explicit Reader(const TensorView& view) : data_(view.data.data()), dtype_(view.dtype) {}

  float operator[](int64_t index) const {
    if (dtype_ == Dtype::kFloat32) {
      float value = 0;
      std::memcpy(&value, data_ + index * 4, sizeof(value));
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, data_ + index * 2, sizeof(bits));
    return dtype_ == Dtype::kBfloat16 ? from_bf16(bits) : from_half(bits);
  }

 private:
  const std::byte* data_;
  Dtype dtype_;
};

class Loader {
 public:
  Loader(const TensorSource& source, bool bf16, ThreadPool& pool, WeightMemory& memory)
      : source_(source), bf16_(bf16), pool_(pool), memory_(memory) {}

  Status vector(const std::string& name, int size, Floats& to) const {
    TUFT_ASSIGN(const TensorView view, find_weight(source_, name, {size}));
    const Reader values(view);
    to = Floats(static_cast<size_t>(size));
    for (int i = 0; i < size; ++i) to.data()[i] = values[i];
    return {};
  }

  Status linear(const std::string& name, int in, int out, bool bias, Linear& to) const {
    TUFT_ASSIGN(const TensorView view, find_weight(source_, name + ".weight", {out, in}));
    to.in = in;
    to.out = out;
    to.bf16 = bf16_;
    const size_t panels = static_cast<size_t>((out + kPanel - 1) / kPanel);
    void* memory = take(panels * kPanel * static_cast<size_t>(in));
    to.panels = memory;
    const Reader values(view);
    if (bf16_) {
      pack(values, in, out, static_cast<uint16_t*>(memory), to_bf16);
    } else {
      pack(values, in, out, static_cast<float*>(memory), [](float value) { return value; });
    }
    if (!bias) return {};
    return vector(name + ".bias", out, to.bias);
  }

  Status rows(const std::string& name, int count, int width, const void*& to) const {
    TUFT_ASSIGN(const TensorView view, find_weight(source_, name, {count, width}));
    const Reader values(view);
    void* memory = take(static_cast<size_t>(count) * static_cast<size_t>(width));
    to = memory;
    const auto copy = [&](int row, int) {
      const int64_t at = static_cast<int64_t>(row) * width;
      for (int64_t i = at; i < at + width; ++i) {
        if (bf16_) static_cast<uint16_t*>(memory)[i] = to_bf16(values[i]);
        if (!bf16_) static_cast<float*>(memory)[i] = values[i];
      }
    };
    pool_.run(count, copy);
    return {};
  }

 private:
  void* take(size_t count) const { return memory_.take(count * (bf16_ ? sizeof(uint16_t) : sizeof(float))); }

  template <typename T, typename Convert>
  void pack(const Reader& values, int in, int out, T* to, const Convert& convert) const {
    const auto one = [&](int panel, int) {
      T* dst = to + static_cast<int64_t>(panel) * in * kPanel;
      const int count = std::min(kPanel, out - panel * kPanel);
      for (int i = 0; i < kPanel; ++i) {
        const int64_t row = (static_cast<int64_t>(panel) * kPanel + i) * in;
        for (int64_t k = 0; k < in; ++k) dst[k * kPanel + i] = i < count ? convert(values[row + k]) : T{};
      }
    };
    pool_.run((out + kPanel - 1) / kPanel, one);
  }

  const TensorSource& source_;
  bool bf16_;
  ThreadPool& pool_;
  WeightMemory& memory_;
};

Status load_block(const ModelSpec& spec, const Loader& loader, int index, BlockWeights& to) {
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const int hidden = spec.hidden_size;
  const int q = spec.heads * spec.head_dim;
  const int kv = spec.kv_heads * spec.head_dim;
  TUFT_TRY(loader.vector(prefix + "input_layernorm.weight", hidden, to.attention_norm));
  TUFT_TRY(loader.vector(prefix + "post_attention_layernorm.weight", hidden, to.mlp_norm));
  if (spec.qk_norm) {
    TUFT_TRY(loader.vector(prefix + "self_attn.q_norm.weight", spec.head_dim, to.q_norm));
    TUFT_TRY(loader.vector(prefix + "self_attn.k_norm.weight", spec.head_dim, to.k_norm));
  }
  TUFT_TRY(loader.linear(prefix + "self_attn.q_proj", hidden, q, spec.qkv_bias, to.q));
  TUFT_TRY(loader.linear(prefix + "self_attn.k_proj", hidden, kv, spec.qkv_bias, to.k));
  TUFT_TRY(loader.linear(prefix + "self_attn.v_proj", hidden, kv, spec.qkv_bias, to.v));
  TUFT_TRY(loader.linear(prefix + "self_attn.o_proj", q, hidden, spec.o_bias, to.o));
  TUFT_TRY(loader.linear(prefix + "mlp.gate_proj", hidden, spec.intermediate_size, spec.mlp_bias, to.gate));
  TUFT_TRY(loader.linear(prefix + "mlp.up_proj", hidden, spec.intermediate_size, spec.mlp_bias, to.up));
  TUFT_TRY(loader.linear(prefix + "mlp.down_proj", spec.intermediate_size, hidden, spec.mlp_bias, to.down));
  return {};
}

}  // namespace

void* WeightMemory::take(size_t bytes) {
  constexpr size_t kAlign = 64;
  constexpr size_t kChunk = size_t{64} << 20;
  if (chunks_.empty() || used_ + bytes > chunks_.back().size()) {
    chunks_.emplace_back(std::max(bytes, kChunk));
    used_ = 0;
  }
  void* memory = chunks_.back().data() + used_;
  used_ += (bytes + kSlack + kAlign - 1) / kAlign * kAlign;
  return memory;
}

void Linear::copy_row(int row, float* to) const {
  const int64_t at = static_cast<int64_t>(row / kPanel) * in * kPanel + row % kPanel;
  for (int64_t k = 0; k < in; ++k) {
    to[k] = value_at(panels, bf16, at + k * kPanel);
  }
}

void Weights::embed(int32_t token, int hidden, float* to) const {
  if (embedding == nullptr) return head.copy_row(token, to);
  const int64_t at = static_cast<int64_t>(token) * hidden;
  for (int i = 0; i < hidden; ++i) to[i] = value_at(embedding, bf16, at + i);
}

Result<Weights> load_weights(const ModelSpec& spec, const TensorSource& source, WeightsDtype dtype, ThreadPool& pool) {
  const std::string embedding = "model.embed_tokens.weight";
  TUFT_ASSIGN(const TensorView view, source.find(embedding));
  Weights weights;
  weights.bf16 = dtype == WeightsDtype::kBfloat16 || (dtype == WeightsDtype::kAuto && view.dtype == Dtype::kBfloat16);
  const Loader loader(source, weights.bf16, pool, weights.memory);
  weights.blocks.resize(static_cast<size_t>(spec.layers));
  for (int i = 0; i < spec.layers; ++i) {
    TUFT_TRY(load_block(spec, loader, i, weights.blocks[static_cast<size_t>(i)]));
  }
  TUFT_TRY(loader.vector("model.norm.weight", spec.hidden_size, weights.final_norm));
  if (spec.tie_word_embeddings) {
    TUFT_TRY(loader.linear("model.embed_tokens", spec.hidden_size, spec.vocab_size, false, weights.head));
  } else {
    TUFT_TRY(loader.linear("lm_head", spec.hidden_size, spec.vocab_size, false, weights.head));
    TUFT_TRY(loader.rows(embedding, spec.vocab_size, spec.hidden_size, weights.embedding));
  }
  return weights;
}

}  // namespace tuft::engine::native
