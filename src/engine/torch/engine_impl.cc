#include "engine/torch/engine_impl.h"

#include <string_view>
#include <utility>

#include "engine/back_end/checks.h"
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
  const bool can = cache_.pool().limit() > 0 && std::string_view(no_recording(place)).empty();
  if (options.record_decode && can) decode_ = std::make_unique<Decode>(transformer_, cache_, make_recording);
}

std::string_view TorchEngine::weights_dtype() const {
  return transformer_.place().weights == at::kBFloat16 ? "bf16" : "f32";
}

Status TorchEngine::create_adapter(const AdapterId& id, const AdapterState& state) {
  return guarded("another adapter", [&]() -> Status {
    TUFT_TRY(adapters_.check_new(id));
    TUFT_ASSIGN(AdapterPtr adapter, Adapter::create(model(), transformer_.place(), state));
    adapters_.add(id, std::move(adapter));
    return {};
  });
}

Status TorchEngine::clone_adapter(const AdapterId& source, const AdapterId& copy) {
  return guarded("a copy of an adapter", [&]() -> Status {
    TUFT_TRY(adapters_.check_new(copy));
    TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(source));
    adapters_.add(copy, adapter->clone());
    return {};
  });
}

Status TorchEngine::remove_adapter(const AdapterId& id) {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
  if (pass_.uses(adapter.get())) pass_.drop();
  cache_.pool().forget(adapter->version());
  adapters_.remove(id);
  return {};
}

Result<AdapterState> TorchEngine::take_adapter(const AdapterId& id) {
  return guarded("a copy of the adapter", [&]() -> Result<AdapterState> {
    TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
    AdapterState state = adapter->state(adapter->has_moments());
    if (adapter->has_gradient()) state.gradients = adapter->gradients();
    TUFT_TRY(remove_adapter(id));
    return state;
  });
}

void TorchEngine::renew(Adapter& adapter) {
  cache_.pool().forget(adapter.version());
  adapters_.renew(adapter);
}

int64_t TorchEngine::adapter_bytes(const LoraSpec& spec, bool trains) const {
  return Adapter::bytes(model(), transformer_.place(), spec, trains);
}

Result<AdapterState> TorchEngine::export_adapter(const AdapterId& id, bool with_optimizer) const {
  return guarded("a copy of the adapter", [&]() -> Result<AdapterState> {
    TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
    return adapter->state(with_optimizer);
  });
}

Status TorchEngine::import_adapter(const AdapterId& id, const AdapterState& state) {
  return guarded("the optimizer state", [&]() -> Status {
    TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
    TUFT_TRY(check_same_layers(adapter->spec(), state.spec));
    TUFT_TRY(check_adapter(model(), state));
    if (pass_.uses(adapter.get())) pass_.drop();
    renew(*adapter);
    adapter->assign(state);
    return {};
  });
}

Status TorchEngine::forward(const Pack& pack, bool keep, std::span<float> logprobs) {
  pass_.drop();
  Status status = guarded("a training pass", [&]() -> Status {
    TUFT_TRY(check_forward(model(), pack, logprobs));
    TUFT_ASSIGN(const auto adapters, adapters_.of(pack));
    const DeviceClock::Scope scope(clock_, &DeviceTimes::forward);
    pass_.forward(pack, adapters, keep, logprobs);
    return {};
  });
  if (!status.ok()) pass_.drop();
  return status;
}

Status TorchEngine::backward(std::span<const float> dloss_dlogprobs) {
  Status status = guarded("the backward pass", [&]() -> Status {
    TUFT_TRY(check_backward(pass_.kept(), pass_.targets(), dloss_dlogprobs));
    const DeviceClock::Scope scope(clock_, &DeviceTimes::backward);
    pass_.backward(dloss_dlogprobs);
    return {};
  });
  if (!status.ok()) pass_.drop();
  return status;
}

Result<OptimReport> TorchEngine::optim_step_of(const AdapterStep& step) {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(step.adapter));
  if (pass_.uses(adapter.get())) pass_.drop();
  renew(*adapter);
  const DeviceClock::Scope scope(clock_, &DeviceTimes::optim_step);
  return adapter->optim_step(step.params);
}

std::vector<Result<OptimReport>> TorchEngine::optim_steps(std::span<const AdapterStep> steps) {
  std::vector<Result<OptimReport>> results;
  const std::vector<Status> checked = check_steps(steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    results.push_back(guarded("the optimizer state", [&]() -> Result<OptimReport> {
      TUFT_TRY(checked[i]);
      return optim_step_of(steps[i]);
    }));
  }
  return results;
}

Status TorchEngine::clear_gradients(const AdapterId& id) {
  return guarded("clearing gradients", [&]() -> Status {
    TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
    adapter->clear_gradients();
    return {};
  });
}

Status TorchEngine::mark_gradients(const AdapterId& id) {
  return guarded("a copy of the gradients", [&]() -> Status {
    TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
    adapter->mark_gradients();
    return {};
  });
}

Status TorchEngine::restore_gradients(const AdapterId& id) {
  return guarded("the gradients of the mark", [&]() -> Status {
    TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
    if (adapter->restore_gradients()) return {};
    return no_mark();
  });
}

Result<std::vector<LoraTensor>> TorchEngine::gradients(const AdapterId& id) const {
  return guarded("a copy of the gradients", [&]() -> Result<std::vector<LoraTensor>> {
    TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
    return adapter->gradients();
  });
}

}  // namespace tuft::engine::torch
