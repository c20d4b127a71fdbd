#include "engine/model_cost.h"

#include <algorithm>
#include <cmath>

namespace tuft::engine {
namespace {

int64_t weights_of(const ModuleShape& shape) {
  return int64_t{shape.in} * shape.out;
}

}  // namespace

AdapterWeights adapter_weights(const ModelSpec& model, const LoraSpec& spec) {
  AdapterWeights weights;
  for (const TargetModule module : spec.target_modules()) {
    const ModuleShape shape = module_shape(model, module);
    const int64_t count = (int64_t{shape.in} + shape.out) * spec.rank;
    if (module == TargetModule::kLmHead) {
      weights.head += count;
    } else {
      weights.blocks += count * model.layers;
    }
  }
  return weights;
}

ModelCost::ModelCost(const ModelSpec& model)
    : head_(weights_of(module_shape(model, TargetModule::kLmHead))),
      // The scores and the sum of values each cost 2 per channel.
      per_pair_(4.0 * model.heads * model.head_dim * model.layers) {
  for (const TargetModule module : kBlockModules) blocks_ += weights_of(module_shape(model, module)) * model.layers;
}

int64_t ModelCost::positions_per_token() const {
  return std::max<int64_t>(1, std::llround(2.0 * static_cast<double>(blocks_ + head_) / per_pair_));
}

double ModelCost::attention(int64_t begin, int64_t tokens) const {
  const auto count = static_cast<double>(tokens);
  return per_pair_ * (count * static_cast<double>(begin) + count * (count + 1) / 2);
}

double ModelCost::forward(const AdapterWeights& adapter, int64_t begin, int64_t tokens) const {
  return 2.0 * static_cast<double>(blocks_ + adapter.blocks) * static_cast<double>(tokens) + attention(begin, tokens);
}

double ModelCost::backward(const AdapterWeights& adapter, int64_t tokens) const {
  return 2.0 * static_cast<double>(blocks_ + 2 * adapter.blocks) * static_cast<double>(tokens) +
         2.0 * attention(0, tokens);
}

double ModelCost::head_forward(const AdapterWeights& adapter, int64_t rows) const {
  return 2.0 * static_cast<double>(head_ + adapter.head) * static_cast<double>(rows);
}

double ModelCost::head_backward(const AdapterWeights& adapter, int64_t rows) const {
  return 2.0 * static_cast<double>(head_ + 2 * adapter.head) * static_cast<double>(rows);
}

}  // namespace tuft::engine
