#include "engine/torch/frozen_linear.h"

#include <memory>
#include <utility>

#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace tuft::engine::torch {
namespace {

namespace autograd = ::torch::autograd;

class FrozenLinearBackward final : public autograd::Node {
 public:
  FrozenLinearBackward(const FrozenLinear& layer, const at::Tensor& x, LoraPlan::Hidden hidden)
      : layer_(layer), x_(x), hidden_(std::move(hidden)) {}

  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    const c10::NoGradGuard no_graph;
    const at::Tensor dy = gradients.front().contiguous();
    at::Tensor dx;
    if (task_should_compute_output(0)) dx = at::mm(dy, layer_.linear->weight.to(dy.scalar_type()));
    layer_.plan->backward(x_, hidden_, dy, layer_.site, layer_.layer, dx);
    return {dx};
  }
  void release_variables() override {
    x_ = at::Tensor();
    hidden_.clear();
  }

 private:
  FrozenLinear layer_;
  at::Tensor x_;
  LoraPlan::Hidden hidden_;
};

}  // namespace

at::Tensor FrozenLinear::operator()(const at::Tensor& x) const {
  const bool graph = c10::GradMode::is_enabled();
  const c10::NoGradGuard no_graph;
  const at::Tensor weight = linear->weight.to(x.scalar_type());
  at::Tensor y = linear->bias.defined() ? at::linear(x, weight, linear->bias) : at::linear(x, weight);
  LoraPlan::Hidden hidden = plan->add(x, y, site, layer);
  if (!graph) return y;
  const std::shared_ptr<FrozenLinearBackward> node(new FrozenLinearBackward(*this, x, std::move(hidden)),
                                                   autograd::deleteNode);
  node->set_next_edges(autograd::collect_next_edges(x));
  autograd::set_history(y, node);
  return y;
}

}  // namespace tuft::engine::torch
