// A simple f64 implementation of the transformer, to compare the engine with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/native/from_tensors.h"
#include "engine/native/weights.h"

namespace tuft::engine::native::test {

// Returns deterministic numbers in (-1, 1).
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  float next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<float>(static_cast<int32_t>(state_ >> 33) - (1 << 30)) / static_cast<float>(1 << 30);
  }
  int below(int limit) { return static_cast<int>((next() * 0.5F + 0.5F) * 0.999F * static_cast<float>(limit)); }
  std::vector<float> many(size_t count, float scale) {
    std::vector<float> values(count);
    for (float& value : values) value = next() * scale;
    return values;
  }

 private:
  uint64_t state_;
};

// Random weights in memory, scaled so that activations neither vanish nor explode.
class MemoryTensors final : public TensorSource {
 public:
  MemoryTensors(const ModelSpec& spec, uint64_t seed);
  Result<TensorView> find(const std::string& name) const override;
  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  const std::vector<float>& values(const std::string& name) const { return tensors_.at(name).values; }
  void round_to_bf16();
  void remove(const std::string& name) { tensors_.erase(name); }

 private:
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  void add(const std::string& name, std::vector<int64_t> shape, Numbers& numbers, float scale, float offset = 0.0F);
  std::map<std::string, Tensor> tensors_;
};

ModelSpec tiny_spec(Family family, bool tied);
std::vector<int32_t> random_tokens(const ModelSpec& spec, int count, uint64_t seed);
// Returns an adapter with random A and B.
AdapterState random_adapter(const ModelSpec& spec, int rank, uint64_t seed);

class ReferenceModel {
 public:
  using Matrix = std::vector<std::vector<double>>;  // [rows][columns]

  ReferenceModel(const ModelSpec& spec, const MemoryTensors& tensors) : spec_(spec), tensors_(tensors) {}
  // `adapter` null: the base model.
  void set_adapter(const AdapterState* adapter) { adapter_ = adapter; }
  Matrix logits(const std::vector<int32_t>& tokens) const;
  std::vector<double> logprobs(const std::vector<int32_t>& tokens, const std::vector<Target>& targets) const;

 private:
  Matrix linear(const Matrix& x, const std::string& name, bool bias, TargetModule module, int layer) const;
  Matrix normed(const Matrix& x, const std::string& name) const;
  void rotate(std::vector<double>& row, int heads, int position, const std::string& norm) const;
  Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v) const;

  const ModelSpec& spec_;
  const MemoryTensors& tensors_;
  const AdapterState* adapter_ = nullptr;
};

}  // namespace tuft::engine::native::test
