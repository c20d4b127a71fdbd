#include "api/json/result_views.h"

#include <bit>
#include <string>

#include "api/json/wire_reader.h"

namespace tuft::api {
namespace {

constexpr int64_t kRowElementsMax = int64_t{1} << 40;

Error damaged_result(std::string_view what) {
  return internal_error("the result is damaged: " + std::string(what));
}

// Calls `read` for each field of a message.
template <typename Read>
Status for_each_field(std::string_view message, std::string_view what, const Read& read) {
  WireReader reader(message);
  WireField field;
  while (reader.next(field)) TUFT_TRY(read(field));
  if (reader.damaged()) return damaged_result(what);
  return {};
}

size_t bytes_of(tinker_public::DType dtype) {
  switch (dtype) {
    case tinker_public::DTYPE_INT64:
      return 8;
    case tinker_public::DTYPE_FLOAT32:
    case tinker_public::DTYPE_INT32:
      return 4;
    case tinker_public::DTYPE_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

void append_sizes(const WireField& field, std::vector<int64_t>& sizes) {
  if (field.type == WireField::Type::kVarint) return sizes.push_back(static_cast<int64_t>(field.value));
  std::string_view packed = field.bytes;
  for (uint64_t size = 0; read_varint(packed, size);) sizes.push_back(static_cast<int64_t>(size));
}

Status view_tensor(std::string_view message, TensorView& tensor) {
  TUFT_TRY(for_each_field(message, "tensor", [&](const WireField& field) -> Status {
    if (field.number == 1) tensor.data = field.bytes;
    if (field.number == 2) tensor.offsets = PackedNumbers<int64_t>(field.bytes);
    if (field.number == 3) tensor.dtype = static_cast<tinker_public::DType>(field.value);
    if (field.number == 4) append_sizes(field, tensor.trailing_shape);
    return {};
  }));
  tensor.element_bytes = bytes_of(tensor.dtype);
  if (tensor.element_bytes == 0) return damaged_result("tensor type");
  for (const int64_t size : tensor.trailing_shape) {
    if (size <= 0 || size > kRowElementsMax / tensor.row_elements) return damaged_result("tensor shape");
    tensor.row_elements *= size;
  }
  return {};
}

Status check_offsets(const TensorView& tensor, int64_t datums) {
  const auto rows = static_cast<size_t>(datums);
  if (datums < 0 || tensor.offsets.size() < rows + 1) return damaged_result("tensor header");
  const auto total = static_cast<int64_t>(tensor.data.size());
  for (size_t i = 0; i < rows; ++i) {
    const int64_t begin = tensor.offsets[i];
    const int64_t end = tensor.offsets[i + 1];
    const bool is_range = begin >= 0 && begin <= end && end <= total;
    if (!is_range || (end - begin) % static_cast<int64_t>(tensor.element_bytes) != 0)
      return damaged_result("tensor offsets");
  }
  return {};
}

Status view_record(std::string_view message, RecordView& record) {
  TUFT_TRY(for_each_field(message, "record", [&](const WireField& field) -> Status {
    if (field.number == 3) record.datums = static_cast<int64_t>(field.value);
    if (field.number != 2) return {};
    TensorView& tensor = record.tensors.emplace_back();
    return for_each_field(field.bytes, "record entry", [&](const WireField& part) -> Status {
      if (part.number == 1) tensor.name = part.bytes;
      return part.number == 2 ? view_tensor(part.bytes, tensor) : Status();
    });
  }));
  for (const TensorView& tensor : record.tensors) TUFT_TRY(check_offsets(tensor, record.datums));
  return {};
}

Status view_topk(std::string_view message, TopkView& topk) {
  TUFT_TRY(for_each_field(message, "top-k logprobs", [&](const WireField& field) -> Status {
    if (field.number == 1) topk.tokens = PackedNumbers<int32_t>(field.bytes);
    if (field.number == 2) topk.logprobs = PackedNumbers<float>(field.bytes);
    if (field.number == 3) topk.columns = static_cast<uint32_t>(field.value);
    if (field.number == 4) topk.rows = static_cast<uint32_t>(field.value);
    return {};
  }));
  const size_t cells = topk.columns * topk.rows;
  const bool good = topk.columns > 0 && topk.tokens.size() == cells && topk.logprobs.size() == cells;
  return good ? Status() : damaged_result("top-k logprobs");
}

Status view_array(std::string_view message, ArrayView& array) {
  TUFT_TRY(for_each_field(message, "tensor", [&](const WireField& field) -> Status {
    if (field.number == 1) array.data = field.bytes;
    if (field.number == 3) array.dtype = static_cast<tinker_public::DType>(field.value);
    if (field.number == 4) append_sizes(field, array.shape);
    if (field.number != 2) return {};
    array.crow_indices.emplace();  // a list without numbers is not on the wire
    array.col_indices.emplace();
    return for_each_field(field.bytes, "sparse tensor", [&](const WireField& part) -> Status {
      if (part.number == 1) array.data = part.bytes;
      if (part.number == 2) array.crow_indices = part.bytes;
      if (part.number == 3) array.col_indices = part.bytes;
      return {};
    });
  }));
  return bytes_of(array.dtype) == 0 ? Status(damaged_result("tensor type")) : Status();
}

Status view_alternatives(std::string_view message, AltTokensView& alternatives) {
  TUFT_TRY(for_each_field(message, "prompt_alt_tokens", [&](const WireField& field) -> Status {
    if (field.number == 1) return view_array(field.bytes, alternatives.tokens);
    if (field.number == 2) return view_array(field.bytes, alternatives.logprobs);
    return {};
  }));
  return {};
}

}  // namespace

Result<PassView> view_pass(std::string_view bytes) {
  PassView pass;
  TUFT_TRY(for_each_field(bytes, "ForwardBackwardOutput", [&](const WireField& field) -> Status {
    if (field.number == 1) pass.output_type = field.bytes;
    if (field.number == 2) return view_record(field.bytes, pass.records.emplace_back());
    if (field.number != 3) return {};
    auto& metric = pass.metrics.emplace_back();
    return for_each_field(field.bytes, "metric", [&](const WireField& part) -> Status {
      if (part.number == 1) metric.first = part.bytes;
      if (part.number == 2 && part.type == WireField::Type::kFixed64) {
        metric.second = std::bit_cast<double>(PackedNumbers<uint64_t>(part.bytes)[0]);
      }
      return {};
    });
  }));
  return pass;
}

Result<SampleView> view_sample(std::string_view bytes) {
  SampleView sample;
  TUFT_TRY(for_each_field(bytes, "SampleResponse", [&](const WireField& field) -> Status {
    if (field.number == 2) sample.prompt_logprobs = field.bytes;
    if (field.number == 3) return view_topk(field.bytes, sample.topk.emplace());
    if (field.number == 4) sample.cached_tokens = static_cast<int64_t>(field.value);
    if (field.number == 5) return view_array(field.bytes, sample.targets.emplace());
    if (field.number == 6) return view_alternatives(field.bytes, sample.alternatives.emplace());
    if (field.number != 1) return {};
    SequenceView& sequence = sample.sequences.emplace_back();
    sequence.stopped = true;  // the default of the message
    return for_each_field(field.bytes, "sequence", [&](const WireField& part) -> Status {
      if (part.number == 1) sequence.stopped = part.value == tinker_public::STOP_REASON_STOP;
      if (part.number == 2) sequence.tokens = part.bytes;
      if (part.number == 3) sequence.logprobs = part.bytes;
      return part.number == 4 ? view_topk(part.bytes, sequence.topk.emplace()) : Status();
    });
  }));
  return sample;
}

}  // namespace tuft::api
