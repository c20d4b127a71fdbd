#include "engine/torch/lora_leaves.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

namespace tuft::engine::torch {
namespace {

at::Tensor stacked(const std::vector<at::Tensor>& matrices) {
  return matrices.size() == 1 ? matrices.front() : at::stack(matrices);
}

void add(const at::Tensor& leaf, std::vector<at::Tensor> gradients, std::span<const float> scales) {
  if (!leaf.grad().defined()) return;  // no row of the adapters was used
  const at::Tensor sum = leaf.grad().to(at::kFloat);
  std::vector<at::Tensor> parts = gradients.size() == 1 ? std::vector{sum} : sum.unbind(0);
  if (!scales.empty()) {
    const std::vector<at::Scalar> factors(scales.begin(), scales.end());
    at::_foreach_mul_(parts, factors);
  }
  at::_foreach_add_(gradients, parts);
}

}  // namespace

LoraFactors factors_of(std::span<Adapter* const> adapters, TargetModule module, int layer) {
  std::vector<at::Tensor> a;
  std::vector<at::Tensor> b;
  for (const Adapter* adapter : adapters) {
    const LoraPair& pair = *adapter->find(module, layer);
    a.push_back(pair.a_scaled);
    b.push_back(pair.b_active);
  }
  return {stacked(a), stacked(b)};
}

LoraFactors LoraLeaves::make(std::span<Adapter* const> adapters, TargetModule module, int layer) {
  Entry entry;
  for (const Adapter* adapter : adapters) {
    entry.pairs.push_back(adapter->find(module, layer));
    entry.scales.push_back(adapter->spec().scale());
  }
  const LoraFactors factors = factors_of(adapters, module, layer);
  entry.leaves = {factors.a.detach().requires_grad_(true), factors.b.detach().requires_grad_(true)};
  entries_.push_back(std::move(entry));
  return entries_.back().leaves;
}

// With a' = scale * a, the gradient of a is scale times that of a'.
void LoraLeaves::collect() {
  const c10::NoGradGuard no_graph;
  for (const Entry& entry : entries_) {
    std::vector<at::Tensor> a;
    std::vector<at::Tensor> b;
    for (const LoraPair* pair : entry.pairs) {
      a.push_back(pair->a_gradient);
      b.push_back(pair->b_gradient);
    }
    add(entry.leaves.a, std::move(a), entry.scales);
    add(entry.leaves.b, std::move(b), {});
  }
  entries_.clear();
}

}  // namespace tuft::engine::torch
