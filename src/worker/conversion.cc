#include "worker/conversion.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "engine/loss/custom_loss.h"
#include "engine/loss/stable_reinforce.h"
#include "loss_graph/program.h"
#include "rpc/methods.h"
#include "worker/packed_numbers.h"
#include "worker/provenance.h"

namespace tuft::worker {
namespace {

// Names come from clients, so only short plain ones are repeated in an error message.
std::string shown_name(const std::string& name) {
  bool plain = !name.empty() && name.size() <= 64;
  for (const char c : name) {
    plain = plain && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_');
  }
  return plain ? "'" + name + "'" : "with an unreadable name";
}

struct TensorName {
  size_t datum = 0;
  const std::string* key = nullptr;

  Error error(const std::string& what) const {
    return invalid_argument("datum " + std::to_string(datum) + ", loss input " + shown_name(*key) + ": " + what,
                            "malformed_tensor");
  }
};

size_t item_size(tinker_public::DType dtype) {
  switch (dtype) {
    case tinker_public::DTYPE_FLOAT32:
    case tinker_public::DTYPE_INT32:
      return 4;
    case tinker_public::DTYPE_INT64:
      return 8;
    case tinker_public::DTYPE_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

std::vector<float> read_bfloat16(const std::string& bytes) {
  const auto halves = read_numbers<uint16_t>(bytes);
  std::vector<float> numbers;
  numbers.reserve(halves.size());
  for (const uint16_t half : halves) numbers.push_back(std::bit_cast<float>(static_cast<uint32_t>(half) << 16));
  return numbers;
}

std::variant<std::vector<float>, std::vector<int64_t>> read_values(const std::string& bytes,
                                                                   tinker_public::DType dtype) {
  if (dtype == tinker_public::DTYPE_FLOAT32) return read_numbers<float>(bytes);
  if (dtype == tinker_public::DTYPE_BFLOAT16) return read_bfloat16(bytes);
  if (dtype == tinker_public::DTYPE_INT64) return read_numbers<int64_t>(bytes);
  const auto narrow = read_numbers<int32_t>(bytes);
  return std::vector<int64_t>(narrow.begin(), narrow.end());
}

// Returns the number of cells of a shape. Fails if it exceeds `cells_left`, the rest of rpc::kLossCellsMax.
Result<int64_t> count_cells(const std::vector<int64_t>& shape, int64_t cells_left, const TensorName& name) {
  if (shape.size() > 2) return name.error("has " + std::to_string(shape.size()) + " dimensions; it must have 1 or 2");
  int64_t cells = 1;
  for (const int64_t size : shape) {
    if (size < 0) return name.error("has a negative size in its shape");
    if (size != 0 && cells > std::numeric_limits<int64_t>::max() / size) return name.error("has an absurd shape");
    cells *= size;
  }
  if (cells > cells_left) {
    return Error{ErrorCode::kPayloadTooLarge,
                 "the loss inputs have more than " + std::to_string(rpc::kLossCellsMax) +
                     " cells together; send fewer datums in one request",
                 "too_many_cells"};
  }
  return cells;
}

Result<engine::LossTensor> read_dense(const tinker_public::Tensor& tensor, int64_t cells_left, const TensorName& name) {
  const std::string& bytes = tensor.dense();
  const size_t size = item_size(tensor.dtype());
  if (bytes.size() % size != 0) {
    return name.error("has " + std::to_string(bytes.size()) + " bytes, which is not a multiple of its item size " +
                      std::to_string(size));
  }
  engine::LossTensor result;
  result.shape.assign(tensor.shape().begin(), tensor.shape().end());
  if (result.shape.empty()) result.shape.push_back(static_cast<int64_t>(bytes.size() / size));
  TUFT_ASSIGN(const int64_t cells, count_cells(result.shape, cells_left, name));
  if (static_cast<size_t>(cells) * size != bytes.size()) {
    return name.error("has " + std::to_string(bytes.size() / size) + " values, but its shape asks for " +
                      std::to_string(cells));
  }
  result.values = read_values(bytes, tensor.dtype());
  return result;
}

struct Sparse {
  std::vector<int64_t> crow;
  std::vector<int64_t> col;
  int64_t rows = 0;
  int64_t cols = 0;
};

Status check_sparse(const Sparse& sparse, const TensorName& name) {
  if (sparse.crow.size() != static_cast<size_t>(sparse.rows) + 1) {
    return name.error("has " + std::to_string(sparse.crow.size()) + " crow_indices for " + std::to_string(sparse.rows) +
                      " rows; one more than rows are needed");
  }
  if (sparse.crow.front() != 0) return name.error("has crow_indices that do not start at 0");
  if (sparse.crow.back() != static_cast<int64_t>(sparse.col.size())) {
    return name.error("has crow_indices that do not end at the number of values");
  }
  for (size_t row = 0; row + 1 < sparse.crow.size(); ++row) {
    if (sparse.crow[row] > sparse.crow[row + 1]) {
      return name.error("has crow_indices that go down after row " + std::to_string(row));
    }
  }
  for (const int64_t col : sparse.col) {
    if (col < 0 || col >= sparse.cols) {
      return name.error("has a column index outside of its " + std::to_string(sparse.cols) + " columns");
    }
  }
  return {};
}

// Returns the cell of each value.
std::vector<int64_t> places_of(Sparse sparse) {
  std::vector<int64_t> places = std::move(sparse.col);
  for (int64_t row = 0; row < sparse.rows; ++row) {
    const auto begin = static_cast<size_t>(sparse.crow[static_cast<size_t>(row)]);
    const auto end = static_cast<size_t>(sparse.crow[static_cast<size_t>(row) + 1]);
    for (size_t i = begin; i < end; ++i) places[i] += row * sparse.cols;
  }
  return places;
}

Result<engine::LossTensor> read_sparse(const tinker_public::Tensor& tensor, int64_t cells_left,
                                       const TensorName& name) {
  const tinker_public::SparseCsr& csr = tensor.sparse_csr();
  if (tensor.shape_size() != 2) return name.error("is sparse_csr, which needs a shape of two dimensions");
  engine::LossTensor result;
  result.shape.assign(tensor.shape().begin(), tensor.shape().end());
  TUFT_TRY(count_cells(result.shape, cells_left, name));
  const size_t size = item_size(tensor.dtype());
  if (csr.crow_indices().size() % 8 != 0 || csr.col_indices().size() % 8 != 0) {
    return name.error("has crow_indices or col_indices that are not whole i64 numbers");
  }
  if (csr.values().size() % size != 0 || csr.values().size() / size != csr.col_indices().size() / 8) {
    return name.error("has " + std::to_string(csr.values().size()) + " bytes of values for " +
                      std::to_string(csr.col_indices().size() / 8) + " column indices");
  }
  // The cell count does not bound the rows of a shape without columns.
  if (result.shape[0] >= static_cast<int64_t>(rpc::kLossCellsMax)) return name.error("has an absurd shape");
  Sparse sparse = {read_numbers<int64_t>(csr.crow_indices()), read_numbers<int64_t>(csr.col_indices()), result.shape[0],
                   result.shape[1]};
  TUFT_TRY(check_sparse(sparse, name));
  result.values = read_values(csr.values(), tensor.dtype());
  result.places = places_of(std::move(sparse));
  return result;
}

Result<engine::LossTensor> read_tensor(const tinker_public::Tensor& tensor, int64_t cells_left,
                                       const TensorName& name) {
  if (item_size(tensor.dtype()) == 0)
    return name.error("has an unsupported dtype; use float32, int64, int32 or bfloat16");
  switch (tensor.encoding_case()) {
    case tinker_public::Tensor::kDense:
      return read_dense(tensor, cells_left, name);
    case tinker_public::Tensor::kSparseCsr:
      return read_sparse(tensor, cells_left, name);
    case tinker_public::Tensor::ENCODING_NOT_SET:
      break;
  }
  return name.error("has no data; send dense or sparse_csr");
}

Status append_chunk(const tinker_public::Chunk& chunk, size_t datum, const std::string& base_model,
                    std::vector<int32_t>& tokens) {
  const std::string where = "datum " + std::to_string(datum) + ": ";
  switch (chunk.chunk_case()) {
    case tinker_public::Chunk::kEncodedText: {
      const std::string& bytes = chunk.encoded_text().tokens();
      if (bytes.size() % 4 != 0) {
        return invalid_argument(where + "a text chunk has " + std::to_string(bytes.size()) +
                                    " bytes, which is not a whole number of i32 tokens",
                                "malformed_tokens");
      }
      const auto more = read_numbers<int32_t>(bytes);
      tokens.insert(tokens.end(), more.begin(), more.end());
      return {};
    }
    case tinker_public::Chunk::kImage:
      return invalid_argument(where + "image input is not supported by model " + base_model, "unsupported_input");
    case tinker_public::Chunk::kDmel:
      return invalid_argument(where + "audio (dmel) input is not supported by model " + base_model,
                              "unsupported_input");
    case tinker_public::Chunk::CHUNK_NOT_SET:
      break;
  }
  return invalid_argument(where + "a chunk of model_input is empty or of a kind that this server does not know",
                          "unsupported_input");
}

// loss_fn_config repeats the numbers of loss_fn_config_v2 for older servers, so a value of the latter wins.
Status read_loss_config(const tinker_public::ForwardBackwardRequest& request, engine::TrainRequest& result) {
  result.loss_config.insert(request.loss_fn_config().begin(), request.loss_fn_config().end());
  for (const auto& [key, value] : request.loss_fn_config_v2()) {
    switch (value.value_case()) {
      case tinker_public::LossConfigValue::kNumber:
        result.loss_config[key] = value.number();
        break;
      case tinker_public::LossConfigValue::kText:
        result.loss_config.erase(key);
        result.loss_texts[key] = value.text();
        break;
      case tinker_public::LossConfigValue::VALUE_NOT_SET:
        return invalid_argument("loss_fn_config: the key " + shown_name(key) + " has no value", "bad_loss_config");
    }
  }
  return {};
}

}  // namespace

Result<engine::TrainRequest> to_train_request(const tinker_public::ForwardBackwardRequest& request,
                                              engine::AdapterId adapter, const std::string& base_model) {
  engine::TrainRequest result;
  result.adapter = std::move(adapter);
  result.loss_fn = request.loss_fn();
  TUFT_TRY(read_loss_config(request, result));
  result.backward = !request.forward_only();
  if (request.data().empty()) return invalid_argument("data is empty; send at least one datum", "no_data");
  result.data.reserve(static_cast<size_t>(request.data_size()));
  int64_t cells_left = rpc::kLossCellsMax;
  for (const auto& source : request.data()) {
    const size_t index = result.data.size();
    engine::Datum datum;
    for (const auto& chunk : source.model_input()) TUFT_TRY(append_chunk(chunk, index, base_model, datum.tokens));
    if (datum.tokens.empty()) {
      return invalid_argument("datum " + std::to_string(index) + ": model_input has no tokens", "no_tokens");
    }
    for (const auto& [key, tensor] : source.loss_fn_inputs()) {
      TUFT_ASSIGN(auto values, read_tensor(tensor, cells_left, TensorName{index, &key}));
      int64_t cells = 1;
      for (const int64_t size : values.shape) cells *= size;
      cells_left -= cells;
      datum.loss_inputs.emplace(key, std::move(values));
    }
    TUFT_TRY(check_provenance(source, index, datum));
    if (result.loss_fn == engine::kStableReinforce) TUFT_TRY(add_sampled_mask(source, index, datum));
    result.data.push_back(std::move(datum));
  }
  return result;
}

Status read_custom_loss(const v1::CustomLoss& message, engine::TrainRequest& request) {
  std::vector<loss_graph::Input> inputs;
  for (const v1::CustomLossInput& input : message.inputs()) inputs.push_back({input.name(), input.rank()});
  TUFT_ASSIGN(request.custom_loss, loss_graph::Program::parse(message.graph(), std::move(inputs)));
  return engine::prepare_custom_loss(request);
}

tinker_public::ForwardBackwardOutput to_output(const engine::TrainOutput& output) {
  tinker_public::ForwardBackwardOutput result;
  result.set_loss_fn_output_type("ArrayRecord");
  for (size_t begin = 0; begin < output.logprobs.size();) {
    const std::vector<int64_t> trailing(output.logprobs[begin].shape.begin() + 1, output.logprobs[begin].shape.end());
    std::vector<int64_t> offsets = {0};
    std::string data;
    size_t end = begin;
    for (; end < output.logprobs.size(); ++end) {
      const engine::LossTensor& tensor = output.logprobs[end];
      if (!std::equal(tensor.shape.begin() + 1, tensor.shape.end(), trailing.begin(), trailing.end())) break;
      data += write_numbers(std::get<std::vector<float>>(tensor.values));
      offsets.push_back(static_cast<int64_t>(data.size()));
    }
    tinker_public::ArrayRecord& record = *result.add_loss_fn_outputs();
    record.set_type_tag("ArrayRecord");
    record.set_num_datums(static_cast<int64_t>(end - begin));
    tinker_public::BatchedTensor& logprobs = (*record.mutable_fields())["logprobs"];
    logprobs.set_data(std::move(data));
    logprobs.set_offsets(write_numbers(offsets));
    logprobs.set_dtype(tinker_public::DTYPE_FLOAT32);
    logprobs.mutable_trailing_shape()->Assign(trailing.begin(), trailing.end());
    begin = end;
  }
  result.mutable_metrics()->insert(output.metrics.begin(), output.metrics.end());
  return result;
}

}  // namespace tuft::worker
