#include "engine/native/engine_impl.h"

#include <cmath>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/batch/check_pack.h"
#include "engine/native/ops/peak.h"
#include "engine/native/optimizer.h"

namespace tuft::engine::native {
namespace {

Error out_of_memory(const char* what) {
  return {ErrorCode::kResourceExhausted,
          std::string("not enough memory for ") + what + ": send fewer or shorter sequences at a time", "memory"};
}

}  // namespace

NativeEngine::NativeEngine(std::unique_ptr<ThreadPool> pool, ModelSpec spec, Weights weights,
                           const NativeOptions& options)
    : pool_(std::move(pool)),
      model_(std::move(spec), std::move(weights), *pool_),
      pass_(model_, options.activation_bytes_max),
      cache_(model_.transformer().kv_offset(model_.spec().layers, 0), options.kv_bytes_max),
      peak_flops_(measure_peak_flops(*pool_)) {}

Result<NativeEngine::AdapterPtr> NativeEngine::find_adapter(const AdapterId& id) const {
  const auto found = adapters_.find(id);
  if (found == adapters_.end()) {
    return not_found("adapter \"" + id.str() + "\" is not loaded: create or load it first", "adapter_not_loaded");
  }
  return found->second;
}

Status NativeEngine::create_adapter(const AdapterId& id, const AdapterState& state) try {
  if (adapters_.contains(id)) {
    return Error{ErrorCode::kAlreadyExists, "adapter \"" + id.str() + "\" is already loaded", "adapter_exists"};
  }
  TUFT_ASSIGN(auto adapter, Adapter::create(model_.spec(), state));
  adapter->set_version(++last_version_);
  adapters_.emplace(id, std::move(adapter));
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("another adapter");
}

Status NativeEngine::remove_adapter(const AdapterId& id) {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  if (pass_.uses(adapter.get())) pass_.drop();
  cache_.forget(adapter->version());
  adapters_.erase(id);
  return {};
}

void NativeEngine::renew(Adapter& adapter) {
  cache_.forget(adapter.version());
  adapter.set_version(++last_version_);
}

AdapterMemory NativeEngine::adapter_memory() const {
  AdapterMemory sum;
  for (const auto& [id, adapter] : adapters_) {
    const AdapterMemory one = adapter->memory();
    sum.weights += one.weights;
    sum.gradients += one.gradients;
    sum.optimizer += one.optimizer;
  }
  return sum;
}

Result<AdapterState> NativeEngine::export_adapter(const AdapterId& id, bool with_optimizer) const try {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  return adapter->state(with_optimizer);
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the adapter");
}

Status NativeEngine::import_adapter(const AdapterId& id, const AdapterState& state) try {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  TUFT_TRY(check_same_layers(adapter->spec(), state.spec));
  TUFT_TRY(check_adapter(model(), state));
  if (pass_.uses(adapter.get())) pass_.drop();
  renew(*adapter);
  adapter->assign(state);
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("the optimizer state");
}

Status NativeEngine::clone_adapter(const AdapterId& source, const AdapterId& copy) try {
  TUFT_ASSIGN(const AdapterPtr from, find_adapter(source));
  if (adapters_.contains(copy)) {
    return Error{ErrorCode::kAlreadyExists, "adapter \"" + copy.str() + "\" is already loaded", "adapter_exists"};
  }
  auto adapter = from->clone(*pool_);
  adapter->set_version(++last_version_);
  adapters_.emplace(copy, std::move(adapter));
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the adapter");
}

Result<AdapterState> NativeEngine::take_adapter(const AdapterId& id) try {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  AdapterState state = adapter->state(adapter->has_moments());
  if (adapter->has_gradient()) state.gradients = adapter->gradients();
  TUFT_TRY(remove_adapter(id));
  return state;
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the adapter");
}

// Value and scaled copy; gradient, its mark and two moments.
int64_t NativeEngine::adapter_bytes(const LoraSpec& spec, bool trains) const {
  return parameters_of(model_.spec(), spec) * static_cast<int64_t>(sizeof(float)) * (trains ? 6 : 2);
}

Result<std::vector<NativeEngine::AdapterPtr>> NativeEngine::adapters_of(const Pack& pack) const {
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

Status NativeEngine::forward(const Pack& pack, bool keep, std::span<float> logprobs) try {
  pass_.drop();
  TUFT_ASSIGN(const auto adapters, adapters_of(pack));
  if (logprobs.size() != pack.targets.size()) {
    return invalid_argument("a pass needs room for one log-probability per target", "pack_targets");
  }
  pass_.forward(pack, adapters, keep, logprobs);
  return {};
} catch (const std::bad_alloc&) {
  pass_.drop();
  return out_of_memory("a training pass");
}

Status NativeEngine::backward(std::span<const float> dloss_dlogprobs) try {
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
  pass_.backward(dloss_dlogprobs);
  return {};
} catch (const std::bad_alloc&) {
  pass_.drop();
  return out_of_memory("the backward pass");
}

Result<NativeEngine::AdapterPtr> NativeEngine::check_step(const AdapterStep& step) const {
  const AdamParams& params = step.params;
  const bool valid = std::isfinite(params.learning_rate) && std::isfinite(params.weight_decay) && params.eps >= 0 &&
                     params.beta1 >= 0 && params.beta1 < 1 && params.beta2 >= 0 && params.beta2 < 1;
  if (!valid) {
    return invalid_argument("AdamW needs a finite learning rate and weight decay, betas in [0, 1) and eps >= 0",
                            "adam_params");
  }
  return find_adapter(step.adapter);
}

std::vector<Result<OptimReport>> NativeEngine::optim_steps(std::span<const AdapterStep> steps) {
  std::vector<Result<OptimReport>> results;
  std::vector<StepOfAdapter> together;
  std::vector<size_t> places;  // of `together` in `results`
  std::set<const Adapter*> seen;
  for (const AdapterStep& step : steps) {
    auto adapter = check_step(step);
    if (!adapter.ok()) {
      results.emplace_back(std::move(adapter).error());
    } else if (!seen.insert(adapter->get()).second) {
      results.emplace_back(invalid_argument("an adapter steps once at a time", "step_twice"));
    } else {
      if (pass_.uses(adapter->get())) pass_.drop();
      renew(**adapter);
      places.push_back(results.size());
      together.push_back({adapter->get(), step.params});
      results.emplace_back(OptimReport());
    }
  }
  auto reports = step_together(together, *pool_);
  for (size_t i = 0; i < reports.size(); ++i) results[places[i]] = std::move(reports[i]);
  return results;
}

Status NativeEngine::clear_gradients(const AdapterId& id) {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  adapter->clear_gradients();
  return {};
}

Status NativeEngine::mark_gradients(const AdapterId& id) try {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  adapter->mark_gradients();
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the gradients");
}

Status NativeEngine::restore_gradients(const AdapterId& id) {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  if (adapter->restore_gradients()) return {};
  return failed_precondition("the adapter's gradient was not marked: call mark_gradients() first", "no_mark");
}

Result<std::vector<LoraTensor>> NativeEngine::gradients(const AdapterId& id) const try {
  TUFT_ASSIGN(const AdapterPtr adapter, find_adapter(id));
  return adapter->gradients();
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the gradients");
}

}  // namespace tuft::engine::native
