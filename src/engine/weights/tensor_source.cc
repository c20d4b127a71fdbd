#include "engine/weights/tensor_source.h"

#include "base/error.h"
#include "engine/shape_text.h"

namespace tuft::engine {
namespace {

bool is_float(Dtype dtype) {
  return dtype == Dtype::kFloat32 || dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat16;
}

}  // namespace

Result<TensorView> find_weight(const TensorSource& source, const std::string& name, const std::vector<int64_t>& shape) {
  TUFT_ASSIGN(TensorView view, source.find(name));
  if (!is_float(view.dtype)) {
    return Error{ErrorCode::kUnimplemented, "tensor " + name + " is not f32, bf16 or f16", "weights_dtype"};
  }
  size_t bytes = dtype_size(view.dtype);
  for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
  if (view.shape != shape || view.data.size() != bytes) {
    return data_loss("tensor " + name + " has shape " + shape_text(view.shape) + ", config.json requires " +
                         shape_text(shape) + ": the model directory contains files of two models",
                     "weights_shape");
  }
  return view;
}

}  // namespace tuft::engine
