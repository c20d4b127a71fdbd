// Views of the serialized results of passes and samples, which are read without copies of their tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tinker/public.pb.h"

namespace tuft::api {

// Reads numbers from the little-endian bytes of a protobuf field.
template <typename T>
class PackedNumbers {
 public:
  PackedNumbers() = default;
  explicit PackedNumbers(std::string_view bytes) : bytes_(bytes) {}
  size_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }

 private:
  std::string_view bytes_;
};

// A tensor of every datum of a record.
struct TensorView {
  std::string_view name;
  std::string_view data;
  PackedNumbers<int64_t> offsets;
  tinker_public::DType dtype = tinker_public::DTYPE_UNSPECIFIED;
  size_t element_bytes = 0;
  std::vector<int64_t> trailing_shape;
  int64_t row_elements = 1;  // the product of trailing_shape

  // Returns the elements of a datum.
  std::string_view of(int64_t datum) const {
    const auto begin = static_cast<size_t>(offsets[static_cast<size_t>(datum)]);
    return data.substr(begin, static_cast<size_t>(offsets[static_cast<size_t>(datum) + 1]) - begin);
  }
};

struct RecordView {
  std::vector<TensorView> tensors;
  int64_t datums = 0;
};

struct PassView {
  std::string_view output_type;
  std::vector<RecordView> records;
  std::vector<std::pair<std::string_view, double>> metrics;
};

struct TopkView {
  PackedNumbers<int32_t> tokens;
  PackedNumbers<float> logprobs;
  size_t columns = 0;
  size_t rows = 0;
};

struct SequenceView {
  bool stopped = false;
  std::string_view tokens;
  std::optional<std::string_view> logprobs;
  std::optional<TopkView> topk;
};

// A whole tensor.
struct ArrayView {
  std::string_view data;
  tinker_public::DType dtype = tinker_public::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  // The indices of a sparse tensor (CSR), i64 each; absent for a dense one.
  std::optional<std::string_view> crow_indices, col_indices;
};

struct AltTokensView {
  ArrayView tokens;
  ArrayView logprobs;
};

struct SampleView {
  std::vector<SequenceView> sequences;
  std::optional<std::string_view> prompt_logprobs;
  std::optional<TopkView> topk;
  std::optional<ArrayView> targets;
  std::optional<AltTokensView> alternatives;
  int64_t cached_tokens = 0;
};

// Each checks all that a reader of the view relies on. kInternal if the result is damaged; `bytes` must outlive the
// view.
Result<PassView> view_pass(std::string_view bytes);
Result<SampleView> view_sample(std::string_view bytes);

}  // namespace tuft::api
