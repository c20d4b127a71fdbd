#include "engine/torch/engine_impl.h"

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/batch/check_pack.h"
#include "engine/device_peak.h"
#include "engine/torch/guarded.h"

namespace tuft::engine::torch {
namespace {

constexpr int64_t kActivationBytesCpu = int64_t{2} << 30;
constexpr int64_t kActivationBytesUnknown = int64_t{8} << 30;

int64_t activation_bytes(const Place& place, const TorchOptions& options) {
  if (options.activation_bytes_max > 0) return options.activation_bytes_max;
  if (!place.is_cuda()) return kActivationBytesCpu;
  const auto free = free_memory(place.device);
  return free ? *free / 4 : kActivationBytesUnknown;
}

}  // namespace

// The KV cache takes its memory before activations are given a share of what is left.
TorchEngine::TorchEngine(ModelSpec spec, Weights weights, const Place& place, const TorchOptions& options)
    : transformer_(std::move(spec), std::move(weights), place),
      clock_(place),
      pass_(transformer_),
      cache_(transformer_.spec(), place, options.kv_bytes_max),
      peak_flops_(known_peak_flops(device_name(place.device),
                                   place.activations == at::kBFloat16 ? PeakType::kBf16 : PeakType::kF32)) {
  pass_.set_activation_bytes_max(activation_bytes(place, options));
}

std::string_view TorchEngine::weights_dtype() const {
  return transformer_.place().weights == at::kBFloat16 ? "bf16" : "f32";
}

Result<TorchEngine::AdapterPtr> TorchEngine::find_adapter(const AdapterId& id) const {
  const auto found = adapters_.find(id);
  if (found == adapters_.end()) {
    return not_found("adapter \"" + id.str() + "\" is not loaded: create or load it first", "adapter_not_loaded");
  }
  return found->second;
}

Status TorchEngine::check_new(const AdapterId& id) const {
  if (!adapters_.contains(id)) return {};
  return Error{ErrorCode::kAlreadyExists, "adapter \"" + id.str() + "\" is already loaded", "adapter_exists"};
}

Status TorchEngine::create_adapter(const AdapterId& id, const AdapterState& state) {
  return guarded("another adapter", [&]() -> Status {
    TUFT_TRY(check_new(id));
    TUFT_ASSIGN(AdapterPtr adapter, Adapter::create(model(), transformer_.place(), state));
    adapter->set_version(++last_version_);
    adapters_.emplace(id, std::move(adapter));
    return {};
  });
}

Status TorchEngine::clone_adapter(const AdapterId& source, const AdapterId& copy) {
  return guarded("a copy of an adapter", [&]() -> Status {
    TUFT_TRY(check_new(copy));
    TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(source));
    AdapterPtr cloned = adapter->clone();
    cloned->set_version(++last_version_);
    adapters_.emplace(copy, std::move(cloned));
    return {};
  });
}

Status TorchEngine::remove_adapter(const AdapterId& id) {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  if (pass_.uses(adapter.get())) pass_.drop();
  cache_.pool().forget(adapter->version());
  adapters_.erase(id);
  return {};
}

Result<AdapterState> TorchEngine::take_adapter(const AdapterId& id) {
  return guarded("a copy of the adapter", [&]() -> Result<AdapterState> {
    TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
    AdapterState state = adapter->state(adapter->has_moments());
    if (adapter->has_gradient()) state.gradients = adapter->gradients();
    TUFT_TRY(remove_adapter(id));
    return state;
  });
}

void TorchEngine::renew(Adapter& adapter) {
  cache_.pool().forget(adapter.version());
  adapter.set_version(++last_version_);
}

AdapterMemory TorchEngine::adapter_memory() const {
  AdapterMemory sum;
  for (const auto& [id, adapter] : adapters_) {
    const AdapterMemory one = adapter->memory();
    sum.weights += one.weights;
    sum.gradients += one.gradients;
    sum.optimizer += one.optimizer;
  }
  return sum;
}

int64_t TorchEngine::adapter_bytes(const LoraSpec& spec, bool trains) const {
  return Adapter::bytes(model(), transformer_.place(), spec, trains);
}

Result<AdapterState> TorchEngine::export_adapter(const AdapterId& id, bool with_optimizer) const {
  return guarded("a copy of the adapter", [&]() -> Result<AdapterState> {
    TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
    return adapter->state(with_optimizer);
  });
}

Status TorchEngine::import_adapter(const AdapterId& id, const AdapterState& state) {
  return guarded("the optimizer state", [&]() -> Status {
    TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
    TUFT_TRY(check_same_layers(adapter->spec(), state.spec));
    TUFT_TRY(check_adapter(model(), state));
    if (pass_.uses(adapter.get())) pass_.drop();
    renew(*adapter);
    adapter->assign(state);
    return {};
  });
}

Result<std::vector<TorchEngine::AdapterPtr>> TorchEngine::adapters_of(const Pack& pack) const {
  TUFT_TRY(check_pack(model(), pack));
  std::vector<AdapterPtr> adapters;
  for (const Segment& segment : pack.segments) {
    AdapterPtr adapter;
    if (!segment.adapter.empty()) {
      TUFT_ASSIGN(adapter, find_adapter(segment.adapter));
    }
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

Status TorchEngine::forward(const Pack& pack, bool keep, std::span<float> logprobs) {
  pass_.drop();
  Status status = guarded("a training pass", [&]() -> Status {
    TUFT_ASSIGN(const auto adapters, adapters_of(pack));
    if (logprobs.size() != pack.targets.size()) {
      return invalid_argument("a pass needs room for one log-probability per target", "pack_targets");
    }
    const DeviceClock::Scope scope(clock_, &DeviceTimes::forward);
    pass_.forward(pack, adapters, keep, logprobs);
    return {};
  });
  if (!status.ok()) pass_.drop();
  return status;
}

Status TorchEngine::backward(std::span<const float> dloss_dlogprobs) {
  if (!pass_.kept()) {
    return failed_precondition(
        "there is no forward pass to go back through: call forward() with keep first, and do "
        "not load or remove its adapters in between",
        "no_forward");
  }
  if (dloss_dlogprobs.size() != pass_.targets()) {
    pass_.drop();
    return invalid_argument("backward() needs one gradient per target of the forward pass", "pack_targets");
  }
  Status status = guarded("the backward pass", [&]() -> Status {
    const DeviceClock::Scope scope(clock_, &DeviceTimes::backward);
    pass_.backward(dloss_dlogprobs);
    return {};
  });
  if (!status.ok()) pass_.drop();
  return status;
}

Result<OptimReport> TorchEngine::optim_step_of(const AdapterStep& step) {
  const AdamParams& params = step.params;
  const bool valid = std::isfinite(params.learning_rate) && std::isfinite(params.weight_decay) && params.eps >= 0 &&
                     params.beta1 >= 0 && params.beta1 < 1 && params.beta2 >= 0 && params.beta2 < 1;
  if (!valid) {
    return invalid_argument("AdamW needs a finite learning rate and weight decay, betas in [0, 1) and eps >= 0",
                            "adam_params");
  }
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(step.adapter));
  if (pass_.uses(adapter.get())) pass_.drop();
  renew(*adapter);
  const DeviceClock::Scope scope(clock_, &DeviceTimes::optim_step);
  return adapter->optim_step(params);
}

std::vector<Result<OptimReport>> TorchEngine::optim_steps(std::span<const AdapterStep> steps) {
  std::vector<Result<OptimReport>> results;
  std::set<AdapterId> seen;
  for (const AdapterStep& step : steps) {
    if (!seen.insert(step.adapter).second) {
      results.emplace_back(invalid_argument("an adapter steps once at a time", "step_twice"));
      continue;
    }
    results.push_back(guarded("the optimizer state", [&]() { return optim_step_of(step); }));
  }
  return results;
}

Status TorchEngine::clear_gradients(const AdapterId& id) {
  return guarded("clearing gradients", [&]() -> Status {
    TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
    adapter->clear_gradients();
    return {};
  });
}

Status TorchEngine::mark_gradients(const AdapterId& id) {
  return guarded("a copy of the gradients", [&]() -> Status {
    TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
    adapter->mark_gradients();
    return {};
  });
}

Status TorchEngine::restore_gradients(const AdapterId& id) {
  return guarded("the gradients of the mark", [&]() -> Status {
    TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
    if (adapter->restore_gradients()) return {};
    return failed_precondition("the adapter's gradient was not marked: call mark_gradients() first", "no_mark");
  });
}

Result<std::vector<LoraTensor>> TorchEngine::gradients(const AdapterId& id) const {
  return guarded("a copy of the gradients", [&]() -> Result<std::vector<LoraTensor>> {
    TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
    return adapter->gradients();
  });
}

}  // namespace tuft::engine::torch
