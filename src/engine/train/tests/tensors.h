// Tensors of a request's losses.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/trainer.h"

namespace tuft::engine {

// Returns `values` in the shape `shape`, which is a vector unless it is given.
template <typename Value>
LossTensor tensor(std::vector<Value> values, std::vector<int64_t> shape) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  return {std::move(shape), std::move(values)};
}

inline LossTensor int_tensor(std::vector<int64_t> values, std::vector<int64_t> shape = {}) {
  return tensor(std::move(values), std::move(shape));
}

inline LossTensor float_tensor(std::vector<float> values, std::vector<int64_t> shape = {}) {
  return tensor(std::move(values), std::move(shape));
}

}  // namespace tuft::engine
