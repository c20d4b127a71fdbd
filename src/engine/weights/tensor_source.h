// Where a back end reads the base model's weights from: TensorFiles, or memory in tests.
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
  explicit FileSource(const TensorFiles& files) : files_(files) {}  // which outlive this
  Result<TensorView> find(const std::string& name) const override { return files_.find(name); }
  bool contains(const std::string& name) const override { return files_.contains(name); }

 private:
  const TensorFiles& files_;
};

// A weight of this shape. kUnimplemented for a stored type that is no float of ours, kDataLoss for another shape.
Result<TensorView> find_weight(const TensorSource& source, const std::string& name, const std::vector<int64_t>& shape);

}  // namespace tuft::engine
