#include "engine/lora.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "engine/mix.h"

namespace tuft::engine {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014).
// Each tensor has its own random stream, so that its bits do not depend on which other modules are trained.
void fill_uniform(std::vector<float>& values, float bound, uint64_t stream) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<int32_t>(mix(stream + i) >> 40);  // 24 bits: exact as f32
    values[i] = static_cast<float>(2 * bits + 1 - (1 << 24)) * (1.0F / (1 << 24)) * bound;
  }
}

LoraTensor make_tensor(const LoraSpec& spec, const LoraLayer& layer) {
  const auto rank = static_cast<size_t>(spec.rank);
  LoraTensor tensor;
  tensor.module = layer.module;
  tensor.layer = layer.layer;
  tensor.a.resize(rank * static_cast<size_t>(layer.in));
  tensor.b.resize(static_cast<size_t>(layer.out) * rank);
  const uint64_t stream = static_cast<uint64_t>(layer.layer) * 16 + static_cast<uint64_t>(layer.module);
  fill_uniform(tensor.a, 1.0F / std::sqrt(static_cast<float>(layer.in)), mix(mix(spec.seed) ^ stream));
  return tensor;
}

bool all_fit(const std::vector<LoraTensor>& tensors, const std::vector<LoraLayer>& layers, int rank) {
  return std::equal(tensors.begin(), tensors.end(), layers.begin(), layers.end(),
                    [rank](const LoraTensor& tensor, const LoraLayer& layer) { return fits(tensor, layer, rank); });
}

}  // namespace

std::string_view module_name(TargetModule module) {
  switch (module) {
    case TargetModule::kQ:
      return "q_proj";
    case TargetModule::kK:
      return "k_proj";
    case TargetModule::kV:
      return "v_proj";
    case TargetModule::kO:
      return "o_proj";
    case TargetModule::kGate:
      return "gate_proj";
    case TargetModule::kUp:
      return "up_proj";
    case TargetModule::kDown:
      return "down_proj";
    case TargetModule::kLmHead:
      return "lm_head";
  }
  return "";
}

ModuleShape module_shape(const ModelSpec& model, TargetModule module) {
  const int query = model.heads * model.head_dim;
  const int key_value = model.kv_heads * model.head_dim;
  switch (module) {
    case TargetModule::kQ:
      return {model.hidden_size, query};
    case TargetModule::kK:
    case TargetModule::kV:
      return {model.hidden_size, key_value};
    case TargetModule::kO:
      return {query, model.hidden_size};
    case TargetModule::kGate:
    case TargetModule::kUp:
      return {model.hidden_size, model.intermediate_size};
    case TargetModule::kDown:
      return {model.intermediate_size, model.hidden_size};
    case TargetModule::kLmHead:
      return {model.hidden_size, model.vocab_size};
  }
  return {};
}

std::vector<TargetModule> LoraSpec::target_modules() const {
  std::vector<TargetModule> out;
  const auto add = [&](bool wanted, std::initializer_list<TargetModule> target_modules) {
    for (const TargetModule module : target_modules) {
      if (wanted) out.push_back(module);
    }
  };
  add(train_attn, {TargetModule::kQ, TargetModule::kK, TargetModule::kV, TargetModule::kO});
  add(train_mlp, {TargetModule::kGate, TargetModule::kUp, TargetModule::kDown});
  add(train_unembed, {TargetModule::kLmHead});
  return out;
}

std::vector<LoraLayer> lora_layers(const ModelSpec& model, const LoraSpec& spec) {
  std::vector<LoraLayer> layers;
  const auto add = [&](TargetModule module, int layer) {
    const ModuleShape shape = module_shape(model, module);
    layers.push_back({module, layer, shape.in, shape.out});
  };
  const std::vector<TargetModule> target_modules = spec.target_modules();
  for (int layer = 0; layer < model.layers; ++layer) {
    for (const TargetModule module : target_modules) {
      if (module != TargetModule::kLmHead) add(module, layer);
    }
  }
  if (spec.train_unembed) add(TargetModule::kLmHead, 0);
  return layers;
}

int lora_layer_index(int layers, const LoraSpec& spec, TargetModule module, int layer) {
  const int attention = spec.train_attn ? static_cast<int>(TargetModule::kGate) : 0;
  const int mlp = spec.train_mlp ? static_cast<int>(TargetModule::kLmHead) - static_cast<int>(TargetModule::kGate) : 0;
  const int first = layer * (attention + mlp);
  if (module == TargetModule::kLmHead) return spec.train_unembed ? layers * (attention + mlp) : -1;
  if (module < TargetModule::kGate) return spec.train_attn ? first + static_cast<int>(module) : -1;
  return spec.train_mlp ? first + attention + static_cast<int>(module) - static_cast<int>(TargetModule::kGate) : -1;
}

std::string_view optimizer_name(Optimizer optimizer) {
  return optimizer == Optimizer::kDimuon ? "dimuon" : "adamw";
}

std::optional<Optimizer> find_optimizer(std::string_view name) {
  for (const Optimizer optimizer : {Optimizer::kAdamW, Optimizer::kDimuon}) {
    if (optimizer_name(optimizer) == name) return optimizer;
  }
  return std::nullopt;
}

int64_t parameters_of(const ModelSpec& model, const LoraSpec& spec) {
  int64_t count = 0;
  for (const LoraLayer& layer : lora_layers(model, spec)) count += spec.rank * (int64_t{layer.in} + layer.out);
  return count;
}

bool fits(const LoraTensor& tensor, const LoraLayer& layer, int rank) {
  const auto size = static_cast<size_t>(rank);
  return tensor.module == layer.module && tensor.layer == layer.layer &&
         tensor.a.size() == size * static_cast<size_t>(layer.in) &&
         tensor.b.size() == size * static_cast<size_t>(layer.out);
}

Status check_adapter(const ModelSpec& model, const AdapterState& state) {
  if (state.spec.rank < 1 || !std::isfinite(state.spec.alpha)) {
    return invalid_argument("a LoRA adapter needs a rank of at least 1 and a finite alpha", "adapter_rank");
  }
  const std::vector<LoraLayer> layers = lora_layers(model, state.spec);
  const auto fit = [&](const std::vector<LoraTensor>& tensors) { return all_fit(tensors, layers, state.spec.rank); };
  if (!fit(state.tensors)) {
    return invalid_argument(
        "the adapter's tensors do not fit the base model and its rank: load it on the model that "
        "it was trained on",
        "adapter_shape");
  }
  if (!state.gradients.empty() && !fit(state.gradients)) {
    return invalid_argument("the gradients do not fit the adapter's tensors", "gradient_shape");
  }
  const bool second_fits =
      state.optimizer == Optimizer::kAdamW ? fit(state.moments.second) : state.moments.second.empty();
  if (state.has_optimizer && (!fit(state.moments.first) || !second_fits)) {
    return invalid_argument("the optimizer state does not fit the adapter's tensors: load the weights without it",
                            "optimizer_shape");
  }
  return {};
}

Status check_same_optimizer(Optimizer optimizer, Optimizer of_moments) {
  if (of_moments == optimizer) return {};
  return invalid_argument("the checkpoint's optimizer state is of " + std::string(optimizer_name(of_moments)) +
                              ", and this model trains with " + std::string(optimizer_name(optimizer)) +
                              ": load the weights without the optimizer, or create the model with that optimizer",
                          "optimizer_mismatch");
}

Status check_same_layers(const LoraSpec& spec, const LoraSpec& other) {
  if (other.rank == spec.rank && other.train_attn == spec.train_attn && other.train_mlp == spec.train_mlp &&
      other.train_unembed == spec.train_unembed) {
    return {};
  }
  return invalid_argument("the checkpoint is of an adapter with another rank or other layers (rank " +
                              std::to_string(other.rank) + ", the run has " + std::to_string(spec.rank) +
                              "): create the run as the checkpoint was",
                          "adapter_spec");
}

AdapterState make_adapter(const ModelSpec& model, const LoraSpec& spec) {
  AdapterState state;
  state.spec = spec;
  for (const LoraLayer& layer : lora_layers(model, spec)) state.tensors.push_back(make_tensor(spec, layer));
  return state;
}

}  // namespace tuft::engine
