#include "engine/model_cost.h"

namespace tuft::engine {
namespace {

int64_t weights_of(const SiteShape& shape) {
  return int64_t{shape.in} * shape.out;
}

}  // namespace

AdapterWeights adapter_weights(const ModelSpec& model, const LoraSpec& spec) {
  AdapterWeights weights;
  for (const Site site : spec.sites()) {
    const SiteShape shape = site_shape(model, site);
    const int64_t count = (int64_t{shape.in} + shape.out) * spec.rank;
    if (site == Site::kLmHead) {
      weights.head += count;
    } else {
      weights.blocks += count * model.layers;
    }
  }
  return weights;
}

ModelCost::ModelCost(const ModelSpec& model)
    : head_(weights_of(site_shape(model, Site::kLmHead))),
      // Scores, and the sum of values: 2 a channel each.
      per_pair_(4.0 * model.heads * model.head_dim * model.layers) {
  for (const Site site : kBlockSites) blocks_ += weights_of(site_shape(model, site)) * model.layers;
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
