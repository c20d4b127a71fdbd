#include "engine/torch/adapter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

namespace tuft::engine::torch {
namespace {

// Returns the adapter's layers without tensors.
std::vector<LoraPair> pairs_of(const ModelSpec& model, const LoraSpec& spec) {
  std::vector<LoraPair> pairs;
  int64_t offset = 0;
  for (const LoraLayer& layer : lora_layers(model, spec)) {
    LoraPair& pair = pairs.emplace_back();
    static_cast<LoraLayer&>(pair) = layer;
    pair.offset = offset;
    offset += int64_t{spec.rank} * (layer.in + layer.out);
  }
  return pairs;
}

}  // namespace

Result<std::unique_ptr<Adapter>> Adapter::create(const ModelSpec& model, const Placement& placement,
                                                 const AdapterState& state) {
  TUFT_TRY(check_adapter(model, state));
  auto adapter = std::unique_ptr<Adapter>(new Adapter());
  adapter->placement_ = placement;
  adapter->spec_ = state.spec;
  adapter->layers_ = model.layers;
  adapter->pairs_ = pairs_of(model, state.spec);
  adapter->parameters_ = parameters_of(model, state.spec);
  adapter->values_ = at::empty({adapter->parameters_}, placement.f32());
  adapter->make_views();
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
  copy->layers_ = layers_;
  copy->parameters_ = parameters_;
  copy->pairs_ = pairs_;
  copy->values_ = values_.clone();
  copy->make_views();
  copy->refresh();
  return copy;
}

void Adapter::make_views() {
  const int64_t rank = spec_.rank;
  active_ = at::empty({parameters_}, placement_.active());
  const auto view = [](const at::Tensor& flat, int64_t offset, int64_t rows, int64_t columns) {
    return flat.narrow(0, offset, rows * columns).view({rows, columns});
  };
  for (LoraPair& pair : pairs_) {
    const int64_t of_b = pair.offset + rank * pair.in;
    pair.a = view(values_, pair.offset, rank, pair.in);
    pair.b = view(values_, of_b, pair.out, rank);
    pair.a_scaled = view(active_, pair.offset, rank, pair.in);
    pair.b_active = view(active_, of_b, pair.out, rank);
  }
}

void Adapter::refresh() {
  const c10::NoGradGuard no_graph;
  active_.copy_(values_);
  std::vector<at::Tensor> a;
  std::vector<at::Tensor> scaled;
  for (const LoraPair& pair : pairs_) {
    a.push_back(pair.a);
    scaled.push_back(pair.a_scaled);
  }
  if (!a.empty()) at::_foreach_copy_(scaled, at::_foreach_mul(a, spec_.scale()));
}

const LoraPair* Adapter::find(TargetModule module, int layer) const {
  const int index = lora_layer_index(layers_, spec_, module, layer);
  return index < 0 ? nullptr : &pairs_[static_cast<size_t>(index)];
}

AdapterMemory Adapter::memory() const {
  const int64_t bytes = parameters_ * 4;
  const int64_t copies = int64_t{gradients_.defined()} + int64_t{marked_gradients_.defined()};
  return {.weights = bytes + static_cast<int64_t>(active_.nbytes()),
          .gradients = copies * bytes,
          .optimizer = first_.defined() ? 2 * bytes : 0};
}

int64_t Adapter::bytes(const ModelSpec& model, const Placement& placement, const LoraSpec& spec, bool trains) {
  const int64_t parameters = parameters_of(model, spec);
  // Always values and their active copies; in training also gradients, the mark and two moments.
  const int64_t active = placement.activations == at::kFloat ? 4 : 2;
  return parameters * (4 + active + (trains ? 16 : 0));
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
  tensors.reserve(pairs_.size());
  for (const LoraPair& pair : pairs_) {
    const float* a = from + pair.offset;
    const float* b = a + int64_t{spec_.rank} * pair.in;
    tensors.push_back({pair.module, pair.layer, {a, b}, {b, b + int64_t{spec_.rank} * pair.out}});
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
  refresh();
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
  first_ = at::zeros({parameters_}, placement_.f32());
  second_ = at::zeros_like(first_);
}

void Adapter::prepare_gradients() {
  gradients_touched_ = true;
  if (gradients_.defined()) return;
  gradients_ = at::zeros({parameters_}, placement_.f32());
  const int64_t rank = spec_.rank;
  for (LoraPair& pair : pairs_) {
    pair.a_gradient = gradients_.narrow(0, pair.offset, pair.a.numel()).view_as(pair.a);
    pair.b_gradient = gradients_.narrow(0, pair.offset + rank * pair.in, pair.b.numel()).view_as(pair.b);
  }
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

OptimReport Adapter::optim_step(const AdamParams& params) {
  const c10::NoGradGuard no_graph;
  OptimReport report;
  report.parameters = parameters_;
  report.step = step_;
  if (!gradients_touched_) return report;
  report.grad_norm = at::linalg_vector_norm(gradients_, 2, {}, false, at::kDouble).item<double>();
  if (!std::isfinite(report.grad_norm)) {
    clear_gradients();
    report.applied = false;
    return report;
  }
  prepare_moments();
  report.step = ++step_;
  if (params.grad_clip_norm > 0) {
    const double clip = params.grad_clip_norm / (report.grad_norm + 1e-6);
    if (clip < 1) gradients_.mul_(clip);
    report.clipped = report.grad_norm > params.grad_clip_norm;
  }
  const auto t = static_cast<double>(step_);
  first_.lerp_(gradients_, 1.0 - params.beta1);
  second_.mul_(params.beta2).addcmul_(gradients_, gradients_, 1.0 - params.beta2);
  const at::Tensor root = second_.sqrt().div_(std::sqrt(1.0 - std::pow(params.beta2, t))).add_(params.eps);
  values_.mul_(1.0 - params.learning_rate * params.weight_decay);
  values_.addcdiv_(first_, root, -params.learning_rate / (1.0 - std::pow(params.beta1, t)));
  refresh();
  clear_gradients();
  report.finite = std::isfinite(values_.sum(at::kDouble).item<double>());
  return report;
}

}  // namespace tuft::engine::torch
