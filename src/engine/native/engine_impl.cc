#include "engine/native/engine_impl.h"

#include <new>
#include <utility>

#include "base/error.h"
#include "engine/back_end/checks.h"
#include "engine/native/ops/peak.h"
#include "engine/native/optimizer.h"

namespace tuft::engine::native {

NativeEngine::NativeEngine(std::unique_ptr<ThreadPool> pool, ModelSpec spec, Weights weights,
                           const NativeOptions& options)
    : pool_(std::move(pool)),
      model_(std::move(spec), std::move(weights), *pool_),
      pass_(model_, options.activation_bytes_max),
      cache_(model_.transformer().kv_offset(model_.spec().layers, 0), options.kv_bytes_max),
      peak_flops_(measure_peak_flops(*pool_)) {}

Status NativeEngine::create_adapter(const AdapterId& id, const AdapterState& state) try {
  TUFT_TRY(adapters_.check_new(id));
  TUFT_ASSIGN(auto adapter, Adapter::create(model_.spec(), state));
  adapters_.add(id, std::move(adapter));
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("another adapter");
}

Status NativeEngine::remove_adapter(const AdapterId& id) {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
  if (pass_.uses(adapter.get())) pass_.drop();
  cache_.forget(adapter->version());
  adapters_.remove(id);
  return {};
}

void NativeEngine::renew(Adapter& adapter) {
  cache_.forget(adapter.version());
  adapters_.renew(adapter);
}

Result<AdapterState> NativeEngine::export_adapter(const AdapterId& id, bool with_optimizer) const try {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
  return adapter->state(with_optimizer);
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the adapter");
}

Status NativeEngine::import_adapter(const AdapterId& id, const AdapterState& state) try {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
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
  TUFT_ASSIGN(const AdapterPtr from, adapters_.find(source));
  TUFT_TRY(adapters_.check_new(copy));
  adapters_.add(copy, from->clone(*pool_));
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the adapter");
}

Result<AdapterState> NativeEngine::take_adapter(const AdapterId& id) try {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
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

Status NativeEngine::forward(const Pack& pack, bool keep, std::span<float> logprobs) try {
  pass_.drop();
  TUFT_TRY(check_forward(model(), pack, logprobs));
  TUFT_ASSIGN(const auto adapters, adapters_.of(pack));
  pass_.forward(pack, adapters, keep, logprobs);
  return {};
} catch (const std::bad_alloc&) {
  pass_.drop();
  return out_of_memory("a training pass");
}

Status NativeEngine::backward(std::span<const float> dloss_dlogprobs) try {
  Status status = check_backward(pass_.kept(), pass_.targets(), dloss_dlogprobs);
  if (status.ok()) {
    pass_.backward(dloss_dlogprobs);
  } else {
    pass_.drop();
  }
  return status;
} catch (const std::bad_alloc&) {
  pass_.drop();
  return out_of_memory("the backward pass");
}

std::vector<Result<OptimReport>> NativeEngine::optim_steps(std::span<const AdapterStep> steps) {
  std::vector<Result<OptimReport>> results;
  std::vector<StepOfAdapter> together;
  std::vector<size_t> places;  // of `together` in `results`
  const std::vector<Status> checked = check_steps(steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto adapter = adapters_.find(steps[i].adapter);
    if (!checked[i].ok() || !adapter.ok()) {
      results.emplace_back(checked[i].ok() ? adapter.error() : checked[i].error());
      continue;
    }
    if (pass_.uses(adapter->get())) pass_.drop();
    renew(**adapter);
    places.push_back(i);
    together.push_back({adapter->get(), steps[i].params});
    results.emplace_back(OptimReport());
  }
  auto reports = step_together(together, *pool_);
  for (size_t i = 0; i < reports.size(); ++i) results[places[i]] = std::move(reports[i]);
  return results;
}

Status NativeEngine::clear_gradients(const AdapterId& id) {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
  adapter->clear_gradients();
  return {};
}

Status NativeEngine::mark_gradients(const AdapterId& id) try {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
  adapter->mark_gradients();
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the gradients");
}

Status NativeEngine::restore_gradients(const AdapterId& id) {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
  if (adapter->restore_gradients()) return {};
  return no_mark();
}

Result<std::vector<LoraTensor>> NativeEngine::gradients(const AdapterId& id) const try {
  TUFT_ASSIGN(const AdapterPtr adapter, adapters_.find(id));
  return adapter->gradients();
} catch (const std::bad_alloc&) {
  return out_of_memory("a copy of the gradients");
}

}  // namespace tuft::engine::native
