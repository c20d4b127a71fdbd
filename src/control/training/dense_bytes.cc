#include "control/training/dense_bytes.h"

#include <string>

#include "rpc/methods.h"

namespace tuft::control {
namespace {

constexpr int64_t kCellBytes = 8;  // of the widest dtype

Error refuse(int datum, const std::string& what) {
  return invalid_argument("datum " + std::to_string(datum) + ": a sparse loss input " + what, "malformed_tensor");
}

// Returns the number of cells of a sparse tensor.
Result<int64_t> cells_of(const tinker_public::Tensor& tensor, int datum) {
  if (tensor.shape_size() != 2) return refuse(datum, "needs a shape of two dimensions");
  const int64_t rows = tensor.shape(0);
  const int64_t columns = tensor.shape(1);
  if (rows < 0 || columns < 0) return refuse(datum, "has a negative size in its shape");
  if (columns > kTargetsOfTokenMax) {
    return refuse(datum, "has " + std::to_string(columns) + " columns; a token has at most " +
                             std::to_string(kTargetsOfTokenMax) + " targets");
  }
  if (rows > rpc::kLossCellsMax) return refuse(datum, "has an absurd shape");
  return rows * columns;
}

}  // namespace

Result<int64_t> dense_bytes(const tinker_public::ForwardBackwardRequest& request) {
  int64_t cells = 0;
  for (int datum = 0; datum < request.data_size(); ++datum) {
    for (const auto& [key, tensor] : request.data(datum).loss_fn_inputs()) {
      if (!tensor.has_sparse_csr()) continue;
      TUFT_ASSIGN(const int64_t more, cells_of(tensor, datum));
      cells += more;
      if (cells > rpc::kLossCellsMax) {
        return Error{ErrorCode::kPayloadTooLarge,
                     "the sparse loss inputs have more than " + std::to_string(rpc::kLossCellsMax) +
                         " cells together; send fewer datums in one request",
                     "too_many_cells"};
      }
    }
  }
  return cells * kCellBytes;
}

}  // namespace tuft::control
