#include "engine/torch/adapter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#if TUFT_TORCH_VERSION >= 20400
#include <ATen/ops/_fused_adamw.h>
#endif
#include <c10/core/GradMode.h>

namespace tuft::engine::torch {

Result<std::unique_ptr<Adapter>> Adapter::create(const ModelSpec& model, const Placement& placement,
                                                 const AdapterState& state) {
  TUFT_TRY(check_adapter(model, state));
  auto adapter = std::unique_ptr<Adapter>(new Adapter());
  adapter->placement_ = placement;
  adapter->spec_ = state.spec;
  adapter->layout_ = LoraLayout(model, state.spec);
  adapter->lora_layers_ = lora_layers(model, state.spec);
  adapter->parameters_ = parameters_of(model, state.spec);
  adapter->values_ = at::empty({adapter->parameters_}, placement.f32());
  adapter->factors_ = at::zeros({adapter->layout_.size()}, placement.active());
  adapter->assign(state);
  if (!state.gradients.empty()) {
    adapter->prepare_gradients();
    adapter->gradients_.copy_(adapter->flat_of(state.gradients));
  }
  return adapter;
}

std::unique_ptr<Adapter> Adapter::clone() const {
  auto copy = std::unique_ptr<Adapter>(new Adapter());
  copy->placement_ = placement_;
  copy->spec_ = spec_;
  copy->layout_ = layout_;
  copy->parameters_ = parameters_;
  copy->lora_layers_ = lora_layers_;
  copy->values_ = values_.clone();
  copy->factors_ = factors_.clone();
  return copy;
}

void Adapter::write_factors() {
  const c10::NoGradGuard no_graph;
  layout_.write(values_, spec_.scale(), factors_);
}

void Adapter::add_gradients(LoraLayout::Section section, const at::Tensor& of_factors) {
  const c10::NoGradGuard no_graph;
  layout_.add_gradients(section, of_factors, spec_.scale(), gradients_);
}

AdapterMemory Adapter::memory() const {
  const int64_t bytes = parameters_ * 4;
  const int64_t copies = int64_t{gradients_.defined()} + int64_t{marked_gradients_.defined()};
  return {.weights = bytes + static_cast<int64_t>(factors_.nbytes()),
          .gradients = copies * bytes,
          .optimizer = first_.defined() ? 2 * bytes : 0};
}

int64_t Adapter::bytes(const ModelSpec& model, const Placement& placement, const LoraSpec& spec, bool trains) {
  // Always values and factors; in training also gradients, the mark and two moments.
  const int64_t width = placement.activations == at::kFloat ? 4 : 2;
  return parameters_of(model, spec) * (trains ? 20 : 4) + width * LoraLayout(model, spec).size();
}

at::Tensor Adapter::flat_of(const std::vector<LoraTensor>& tensors) const {
  at::Tensor host = at::empty({parameters_}, placement_.f32_host());
  float* to = host.data_ptr<float>();
  for (const LoraTensor& tensor : tensors) {
    to = std::copy(tensor.a.begin(), tensor.a.end(), to);
    to = std::copy(tensor.b.begin(), tensor.b.end(), to);
  }
  return host;
}

std::vector<LoraTensor> Adapter::tensors_of(const at::Tensor& flat) const {
  const at::Tensor host = flat.defined() ? flat.to(at::kCPU) : at::zeros({parameters_}, placement_.f32_host());
  const float* from = host.data_ptr<float>();
  std::vector<LoraTensor> tensors;
  tensors.reserve(lora_layers_.size());
  for (const LoraLayer& layer : lora_layers_) {
    const float* b = from + int64_t{spec_.rank} * layer.in;
    const float* end = b + int64_t{spec_.rank} * layer.out;
    tensors.push_back({layer.module, layer.layer, {from, b}, {b, end}});
    from = end;
  }
  return tensors;
}

AdapterState Adapter::state(bool with_optimizer) const {
  AdapterState state;
  state.spec = spec_;
  state.tensors = tensors_of(values_);
  state.has_optimizer = with_optimizer;
  if (with_optimizer) {
    state.moments.step = step_;
    state.moments.first = tensors_of(first_);
    state.moments.second = tensors_of(second_);
  }
  return state;
}

std::vector<LoraTensor> Adapter::gradients() const {
  return tensors_of(gradients_);
}

void Adapter::assign(const AdapterState& state) {
  if (state.has_optimizer) prepare_moments();
  spec_ = state.spec;
  values_.copy_(flat_of(state.tensors));
  write_factors();
  clear_gradients();
  step_ = 0;
  if (state.has_optimizer) {
    step_ = state.moments.step;
    first_.copy_(flat_of(state.moments.first));
    second_.copy_(flat_of(state.moments.second));
  } else if (first_.defined()) {
    first_.zero_();
    second_.zero_();
  }
}

void Adapter::prepare_moments() {
  if (first_.defined()) return;
  at::Tensor second = at::zeros({parameters_}, placement_.f32());
  first_ = at::zeros_like(second);  // both or, without memory, none
  second_ = std::move(second);
}

void Adapter::prepare_gradients() {
  if (!gradients_.defined()) gradients_ = at::zeros({parameters_}, placement_.f32());
  gradients_touched_ = true;
}

void Adapter::clear_gradients() {
  if (gradients_touched_) gradients_.zero_();
  gradients_touched_ = false;
  marked_ = false;
  marked_gradients_ = at::Tensor();
}

void Adapter::mark_gradients() {
  marked_gradients_ = gradients_touched_ ? gradients_.clone() : at::Tensor();
  marked_ = true;
}

bool Adapter::restore_gradients() {
  if (!marked_) return false;
  if (marked_gradients_.defined()) {
    gradients_.copy_(marked_gradients_);
    gradients_touched_ = true;
  } else {
    if (gradients_touched_) gradients_.zero_();
    gradients_touched_ = false;
  }
  return true;
}

at::Tensor Adapter::grad_norm() const {
  if (!gradients_touched_) return at::zeros({}, placement_.f32().dtype(at::kDouble));
  return at::linalg_vector_norm(gradients_, 2, {}, false, at::kDouble);
}

at::Tensor Adapter::largest_value() const {
  return at::linalg_vector_norm(values_, std::numeric_limits<double>::infinity());
}

void Adapter::adamw(const AdamParams& params, [[maybe_unused]] const at::Tensor& step) {
#if TUFT_TORCH_VERSION >= 20400
  // One kernel for everything, which reads and writes each number once.
  at::_fused_adamw_({values_}, {gradients_}, {first_}, {second_}, {}, {step}, params.learning_rate, params.beta1,
                    params.beta2, params.weight_decay, params.eps, false, false);
#else
  const auto t = static_cast<double>(step_);
  first_.lerp_(gradients_, 1.0 - params.beta1);
  second_.mul_(params.beta2).addcmul_(gradients_, gradients_, 1.0 - params.beta2);
  const at::Tensor root = second_.sqrt().div_(std::sqrt(1.0 - std::pow(params.beta2, t))).add_(params.eps);
  values_.mul_(1.0 - params.learning_rate * params.weight_decay);
  values_.addcdiv_(first_, root, -params.learning_rate / (1.0 - std::pow(params.beta1, t)));
#endif
}

OptimReport Adapter::optim_step(const AdamParams& params, double grad_norm) {
  OptimReport report;
  report.parameters = parameters_;
  report.step = step_;
  if (!gradients_touched_) return report;
  report.grad_norm = grad_norm;
  if (!std::isfinite(grad_norm)) {
    clear_gradients();
    return report;
  }
  // What may lack memory comes before the first change: a step that fails has no effect.
  prepare_moments();
  const at::Tensor step = at::full({}, static_cast<double>(step_ + 1), placement_.f32());
  report.applied = true;
  report.step = ++step_;
  if (params.grad_clip_norm > 0) {
    const double clip = params.grad_clip_norm / (grad_norm + 1e-6);
    if (clip < 1) gradients_.mul_(clip);
    report.clipped = grad_norm > params.grad_clip_norm;
  }
  adamw(params, step);
  write_factors();
  clear_gradients();
  return report;
}

}  // namespace tuft::engine::torch
