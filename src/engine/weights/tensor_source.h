// TensorSource: the source of the base model's weights, either TensorFiles or memory (in tests).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual Result<TensorView> find(const std::string& name) const = 0;
  virtual bool contains(const std::string& name) const = 0;
};

class FileSource final : public TensorSource {
 public:
  explicit FileSource(const TensorFiles& files) : files_(files) {}  // `files` must outlive this
  Result<TensorView> find(const std::string& name) const override { return files_.find(name); }
  bool contains(const std::string& name) const override { return files_.contains(name); }

 private:
  const TensorFiles& files_;
};

// Returns a weight of this shape. Returns kUnimplemented unless it is f32, bf16 or f16, kDataLoss for another shape.
Result<TensorView> find_weight(const TensorSource& source, const std::string& name, const std::vector<int64_t>& shape);

}  // namespace tuft::engine
