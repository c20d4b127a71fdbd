// Safetensors files, memory-mapped: https://huggingface.co/docs/safetensors (8-byte length, JSON header, data).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tuft::engine {

enum class Dtype : uint8_t { kFloat32, kBfloat16, kFloat16, kInt64, kInt32 };
size_t dtype_size(Dtype dtype);

struct TensorView {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // borrowed from the file's mapping

  int64_t elements() const;
  // Returns all values as f32. Returns kInvalidArgument for integers.
  Result<std::vector<float>> to_float() const;
};

// A model's tensors by name, from model.safetensors or from the files that model.safetensors.index.json names. The
// mapping lives as long as this object. Opening checks every offset, shape and length: a damaged or hostile file gives
// kDataLoss with the reason, never a crash. Thread-safe.
class TensorFiles {
 public:
  static Result<std::unique_ptr<TensorFiles>> open_model(const std::filesystem::path& directory);
  static Result<std::unique_ptr<TensorFiles>> open_file(const std::filesystem::path& file);
  virtual ~TensorFiles() = default;

  // Returns kNotFound with the tensor and the directory.
  virtual Result<TensorView> find(const std::string& name) const = 0;
  // Returns all values of a tensor as f32, as find() and to_float() do, but reads them from the file. Where the disk
  // fails, or somebody cuts the file, reading the mapping is a signal that ends the process; here it is an error:
  // kInternal "io", or kDataLoss if the file has become shorter.
  virtual Result<std::vector<float>> read(const std::string& name) const = 0;
  virtual bool contains(const std::string& name) const = 0;
  virtual std::vector<std::string> names() const = 0;  // sorted
  // Returns the file's __metadata__; empty for a model of several files.
  virtual const std::map<std::string, std::string>& metadata() const = 0;
};

struct NamedTensor {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Writes and syncs one file. Not atomic: write it into a directory that is renamed afterwards.
Status write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace tuft::engine
