#include "engine/native/tests/reference_model.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace tuft::engine::native::test {
namespace {

size_t product(const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  return count;
}

double frequency(const ModelSpec& spec, int index) {
  const RopeScaling& s = spec.rope_scaling;
  const double plain = std::pow(spec.rope_theta, -2.0 * index / spec.head_dim);
  if (s.type == RopeScaling::Type::kLinear) return plain / s.factor;
  if (s.type == RopeScaling::Type::kLlama3) {
    const double turns = s.original_max_position * plain / (2 * std::numbers::pi);
    if (turns > s.high_freq_factor) return plain;
    if (turns < s.low_freq_factor) return plain / s.factor;
    const double smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    return plain * ((1 - smooth) / s.factor + smooth);
  }
  if (s.type == RopeScaling::Type::kYarn) {
    const auto dimension = [&](double rotations) {
      return spec.head_dim * std::log(s.original_max_position / (rotations * 2 * std::numbers::pi)) /
             (2 * std::log(spec.rope_theta));
    };
    const double low = std::max(0.0, std::floor(dimension(s.beta_fast)));
    const double high = std::min(spec.head_dim - 1.0, std::ceil(dimension(s.beta_slow)));
    const double ramp = std::min(1.0, std::max(0.0, (index - low) / (high - low)));
    return plain * (ramp / s.factor + 1 - ramp);
  }
  return plain;
}

}  // namespace

MemoryTensors::MemoryTensors(const ModelSpec& spec, uint64_t seed) {
  Numbers numbers(seed);
  const int64_t hidden = spec.hidden_size;
  const int64_t q = spec.heads * spec.head_dim;
  const int64_t kv = spec.kv_heads * spec.head_dim;
  add("model.embed_tokens.weight", {spec.vocab_size, hidden}, numbers, 1.0F);
  if (!spec.tie_word_embeddings) add("lm_head.weight", {spec.vocab_size, hidden}, numbers, 0.4F);
  add("model.norm.weight", {hidden}, numbers, 0.2F, 1.0F);
  for (int layer = 0; layer < spec.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "input_layernorm.weight", {hidden}, numbers, 0.2F, 1.0F);
    add(prefix + "post_attention_layernorm.weight", {hidden}, numbers, 0.2F, 1.0F);
    if (spec.qk_norm) {
      add(prefix + "self_attn.q_norm.weight", {spec.head_dim}, numbers, 0.2F, 1.5F);
      add(prefix + "self_attn.k_norm.weight", {spec.head_dim}, numbers, 0.2F, 1.5F);
    }
    const auto linear = [&](const std::string& name, int64_t in, int64_t out, bool bias) {
      add(prefix + name + ".weight", {out, in}, numbers, 1.5F / std::sqrt(static_cast<float>(in)));
      if (bias) add(prefix + name + ".bias", {out}, numbers, 0.3F);
    };
    linear("self_attn.q_proj", hidden, q, spec.qkv_bias);
    linear("self_attn.k_proj", hidden, kv, spec.qkv_bias);
    linear("self_attn.v_proj", hidden, kv, spec.qkv_bias);
    linear("self_attn.o_proj", q, hidden, spec.o_bias);
    linear("mlp.gate_proj", hidden, spec.intermediate_size, spec.mlp_bias);
    linear("mlp.up_proj", hidden, spec.intermediate_size, spec.mlp_bias);
    linear("mlp.down_proj", spec.intermediate_size, hidden, spec.mlp_bias);
  }
}

void MemoryTensors::add(const std::string& name, std::vector<int64_t> shape, Numbers& numbers, float scale,
                        float offset) {
  std::vector<float> values = numbers.many(product(shape), scale);
  for (float& value : values) value += offset;
  tensors_[name] = {std::move(shape), std::move(values)};
}

void MemoryTensors::round_to_bf16() {
  for (auto& [name, tensor] : tensors_) {
    if (tensor.shape.size() != 2) continue;
    for (float& value : tensor.values) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000U);
  }
}

Result<TensorView> MemoryTensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return not_found("no tensor " + name);
  TensorView view;
  view.shape = found->second.shape;
  view.data = std::as_bytes(std::span(found->second.values));
  return view;
}

ModelSpec tiny_spec(Family family, bool tied) {
  ModelSpec spec;
  spec.family = family;
  spec.vocab_size = 53;
  spec.hidden_size = 40;
  spec.intermediate_size = 52;
  spec.layers = 2;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 10;
  spec.max_position = 512;
  spec.tie_word_embeddings = tied;
  const FamilyFacts& facts = facts_of(family);
  spec.qkv_bias = facts.always_qkv_bias;
  spec.qk_norm = facts.qk_norm;
  if (facts.default_head_dim > 0) spec.head_dim = 16;  // not hidden_size / heads
  return spec;
}

std::vector<int32_t> random_tokens(const ModelSpec& spec, int count, uint64_t seed) {
  Numbers numbers(seed);
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(numbers.below(spec.vocab_size));
  return tokens;
}

AdapterState random_adapter(const ModelSpec& spec, int rank, uint64_t seed) {
  LoraSpec lora;
  lora.rank = rank;
  lora.alpha = 2.0F * static_cast<float>(rank);
  lora.seed = seed;
  AdapterState state = make_adapter(spec, lora);
  Numbers numbers(seed + 1000);
  for (LoraTensor& tensor : state.tensors) tensor.b = numbers.many(tensor.b.size(), 0.2F);
  return state;
}

ReferenceModel::Matrix ReferenceModel::linear(const Matrix& x, const std::string& name, bool bias, TargetModule module,
                                              int layer) const {
  const std::vector<float>& weight = tensors_.values(name + ".weight");
  const size_t in = x[0].size();
  const size_t out = weight.size() / in;
  const LoraTensor* lora = nullptr;
  if (adapter_ != nullptr) {
    for (const LoraTensor& tensor : adapter_->tensors) {
      if (tensor.module == module && tensor.layer == layer) lora = &tensor;
    }
  }
  Matrix y(x.size(), std::vector<double>(out));
  for (size_t row = 0; row < x.size(); ++row) {
    for (size_t j = 0; j < out; ++j) {
      for (size_t k = 0; k < in; ++k) y[row][j] += static_cast<double>(weight[j * in + k]) * x[row][k];
      if (bias) y[row][j] += tensors_.values(name + ".bias")[j];
    }
    if (lora == nullptr) continue;
    const size_t rank = lora->a.size() / in;
    for (size_t r = 0; r < rank; ++r) {
      double hidden = 0;
      for (size_t k = 0; k < in; ++k) hidden += static_cast<double>(lora->a[r * in + k]) * x[row][k];
      for (size_t j = 0; j < out; ++j) y[row][j] += adapter_->spec.scale() * hidden * lora->b[j * rank + r];
    }
  }
  return y;
}

ReferenceModel::Matrix ReferenceModel::normed(const Matrix& x, const std::string& name) const {
  Matrix y = x;
  for (auto& row : y) {
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(row.size()) + spec_.rms_norm_eps);
    for (size_t i = 0; i < row.size(); ++i) row[i] *= factor * tensors_.values(name)[i];
  }
  return y;
}

void ReferenceModel::rotate(std::vector<double>& row, int heads, int position, const std::string& norm) const {
  const int width = spec_.head_dim;
  const RopeScaling& scaling = spec_.rope_scaling;
  const double factor = scaling.type == RopeScaling::Type::kYarn ? 0.1 * std::log(scaling.factor) + 1 : 1.0;
  for (int head = 0; head < heads; ++head) {
    std::vector<double> x(row.begin() + head * width, row.begin() + (head + 1) * width);
    if (spec_.qk_norm) x = normed({x}, norm)[0];
    for (int i = 0; i < width / 2; ++i) {
      const double angle = position * frequency(spec_, i);
      const double low = x[static_cast<size_t>(i)];
      const double high = x[static_cast<size_t>(i + width / 2)];
      row[static_cast<size_t>(head * width + i)] = factor * (low * std::cos(angle) - high * std::sin(angle));
      row[static_cast<size_t>(head * width + i + width / 2)] =
          factor * (high * std::cos(angle) + low * std::sin(angle));
    }
  }
}

ReferenceModel::Matrix ReferenceModel::attention(const Matrix& q, const Matrix& k, const Matrix& v) const {
  const auto width = static_cast<size_t>(spec_.head_dim);
  Matrix out(q.size(), std::vector<double>(q[0].size()));
  for (size_t t = 0; t < q.size(); ++t) {
    for (size_t head = 0; head < static_cast<size_t>(spec_.heads); ++head) {
      const size_t kv = head / static_cast<size_t>(spec_.heads / spec_.kv_heads);
      std::vector<double> weight(t + 1);
      double top = -1e300;
      for (size_t s = 0; s <= t; ++s) {
        for (size_t i = 0; i < width; ++i) weight[s] += q[t][head * width + i] * k[s][kv * width + i];
        weight[s] /= std::sqrt(static_cast<double>(width));
        top = std::max(top, weight[s]);
      }
      double sum = 0;
      for (double& value : weight) sum += value = std::exp(value - top);
      for (size_t s = 0; s <= t; ++s) {
        for (size_t i = 0; i < width; ++i) out[t][head * width + i] += weight[s] / sum * v[s][kv * width + i];
      }
    }
  }
  return out;
}

ReferenceModel::Matrix ReferenceModel::logits(const std::vector<int32_t>& tokens) const {
  const auto hidden = static_cast<size_t>(spec_.hidden_size);
  Matrix x;
  for (const int32_t token : tokens) {
    const auto& table = tensors_.values("model.embed_tokens.weight");
    const auto begin = table.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(token) * hidden);
    x.emplace_back(begin, begin + static_cast<ptrdiff_t>(hidden));
  }
  const auto add = [&](const Matrix& y) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < hidden; ++i) x[t][i] += y[t][i];
    }
  };
  for (int layer = 0; layer < spec_.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const Matrix n = normed(x, prefix + "input_layernorm.weight");
    Matrix q = linear(n, prefix + "self_attn.q_proj", spec_.qkv_bias, TargetModule::kQ, layer);
    Matrix k = linear(n, prefix + "self_attn.k_proj", spec_.qkv_bias, TargetModule::kK, layer);
    const Matrix v = linear(n, prefix + "self_attn.v_proj", spec_.qkv_bias, TargetModule::kV, layer);
    for (size_t t = 0; t < x.size(); ++t) {
      rotate(q[t], spec_.heads, static_cast<int>(t), prefix + "self_attn.q_norm.weight");
      rotate(k[t], spec_.kv_heads, static_cast<int>(t), prefix + "self_attn.k_norm.weight");
    }
    add(linear(attention(q, k, v), prefix + "self_attn.o_proj", spec_.o_bias, TargetModule::kO, layer));
    const Matrix m = normed(x, prefix + "post_attention_layernorm.weight");
    Matrix gate = linear(m, prefix + "mlp.gate_proj", spec_.mlp_bias, TargetModule::kGate, layer);
    const Matrix up = linear(m, prefix + "mlp.up_proj", spec_.mlp_bias, TargetModule::kUp, layer);
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] *= up[t][i] / (1 + std::exp(-gate[t][i]));
    }
    add(linear(gate, prefix + "mlp.down_proj", spec_.mlp_bias, TargetModule::kDown, layer));
  }
  const std::string head = spec_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
  return linear(normed(x, "model.norm.weight"), head, false, TargetModule::kLmHead, 0);
}

std::vector<double> ReferenceModel::logprobs(const std::vector<int32_t>& tokens,
                                             const std::vector<Target>& targets) const {
  const Matrix rows = logits(tokens);
  std::vector<double> result;
  for (const Target& target : targets) {
    const auto& row = rows[static_cast<size_t>(target.row)];
    double sum = 0;
    for (const double value : row) sum += std::exp(value);
    result.push_back(row[static_cast<size_t>(target.token)] - std::log(sum));
  }
  return result;
}

}  // namespace tuft::engine::native::test
