#include "engine/lora.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace tuft::engine {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014).
uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

// Each tensor has a stream of its own, so that its bits do not depend on which other sites are trained.
void fill_uniform(std::vector<float>& values, float bound, uint64_t stream) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<int32_t>(mix(stream + i) >> 40);  // 24 bits: exact as f32
    values[i] = static_cast<float>(2 * bits + 1 - (1 << 24)) * (1.0F / (1 << 24)) * bound;
  }
}

LoraTensor make_tensor(const LoraSpec& spec, const LoraPlace& place) {
  const auto rank = static_cast<size_t>(spec.rank);
  LoraTensor tensor;
  tensor.site = place.site;
  tensor.layer = place.layer;
  tensor.a.resize(rank * static_cast<size_t>(place.in));
  tensor.b.resize(static_cast<size_t>(place.out) * rank);
  const uint64_t stream = static_cast<uint64_t>(place.layer) * 16 + static_cast<uint64_t>(place.site);
  fill_uniform(tensor.a, 1.0F / std::sqrt(static_cast<float>(place.in)), mix(mix(spec.seed) ^ stream));
  return tensor;
}

bool all_fit(const std::vector<LoraTensor>& tensors, const std::vector<LoraPlace>& places, int rank) {
  return std::equal(tensors.begin(), tensors.end(), places.begin(), places.end(),
                    [rank](const LoraTensor& tensor, const LoraPlace& place) { return fits(tensor, place, rank); });
}

}  // namespace

std::string_view site_name(Site site) {
  switch (site) {
    case Site::kQ:
      return "q_proj";
    case Site::kK:
      return "k_proj";
    case Site::kV:
      return "v_proj";
    case Site::kO:
      return "o_proj";
    case Site::kGate:
      return "gate_proj";
    case Site::kUp:
      return "up_proj";
    case Site::kDown:
      return "down_proj";
    case Site::kLmHead:
      return "lm_head";
  }
  return "";
}

SiteShape site_shape(const ModelSpec& model, Site site) {
  const int query = model.heads * model.head_dim;
  const int key_value = model.kv_heads * model.head_dim;
  switch (site) {
    case Site::kQ:
      return {model.hidden_size, query};
    case Site::kK:
    case Site::kV:
      return {model.hidden_size, key_value};
    case Site::kO:
      return {query, model.hidden_size};
    case Site::kGate:
    case Site::kUp:
      return {model.hidden_size, model.intermediate_size};
    case Site::kDown:
      return {model.intermediate_size, model.hidden_size};
    case Site::kLmHead:
      return {model.hidden_size, model.vocab_size};
  }
  return {};
}

std::vector<Site> LoraSpec::sites() const {
  std::vector<Site> out;
  const auto add = [&](bool wanted, std::initializer_list<Site> sites) {
    for (const Site site : sites) {
      if (wanted) out.push_back(site);
    }
  };
  add(train_attn, {Site::kQ, Site::kK, Site::kV, Site::kO});
  add(train_mlp, {Site::kGate, Site::kUp, Site::kDown});
  add(train_unembed, {Site::kLmHead});
  return out;
}

std::vector<LoraPlace> lora_places(const ModelSpec& model, const LoraSpec& spec) {
  std::vector<LoraPlace> places;
  const auto add = [&](Site site, int layer) {
    const SiteShape shape = site_shape(model, site);
    places.push_back({site, layer, shape.in, shape.out});
  };
  const std::vector<Site> sites = spec.sites();
  for (int layer = 0; layer < model.layers; ++layer) {
    for (const Site site : sites) {
      if (site != Site::kLmHead) add(site, layer);
    }
  }
  if (spec.train_unembed) add(Site::kLmHead, 0);
  return places;
}

int lora_place_index(int layers, const LoraSpec& spec, Site site, int layer) {
  const int attention = spec.train_attn ? static_cast<int>(Site::kGate) : 0;
  const int mlp = spec.train_mlp ? static_cast<int>(Site::kLmHead) - static_cast<int>(Site::kGate) : 0;
  const int first = layer * (attention + mlp);
  if (site == Site::kLmHead) return spec.train_unembed ? layers * (attention + mlp) : -1;
  if (site < Site::kGate) return spec.train_attn ? first + static_cast<int>(site) : -1;
  return spec.train_mlp ? first + attention + static_cast<int>(site) - static_cast<int>(Site::kGate) : -1;
}

int64_t parameters_of(const ModelSpec& model, const LoraSpec& spec) {
  int64_t count = 0;
  for (const LoraPlace& place : lora_places(model, spec)) count += spec.rank * (int64_t{place.in} + place.out);
  return count;
}

bool fits(const LoraTensor& tensor, const LoraPlace& place, int rank) {
  const auto size = static_cast<size_t>(rank);
  return tensor.site == place.site && tensor.layer == place.layer &&
         tensor.a.size() == size * static_cast<size_t>(place.in) &&
         tensor.b.size() == size * static_cast<size_t>(place.out);
}

Status check_adapter(const ModelSpec& model, const AdapterState& state) {
  if (state.spec.rank < 1 || !std::isfinite(state.spec.alpha)) {
    return invalid_argument("a LoRA adapter needs a rank of at least 1 and a finite alpha", "adapter_rank");
  }
  const std::vector<LoraPlace> places = lora_places(model, state.spec);
  const auto fit = [&](const std::vector<LoraTensor>& tensors) { return all_fit(tensors, places, state.spec.rank); };
  if (!fit(state.tensors)) {
    return invalid_argument(
        "the adapter's tensors do not fit the base model and its rank: load it on the model that "
        "it was trained on",
        "adapter_shape");
  }
  if (!state.gradients.empty() && !fit(state.gradients)) {
    return invalid_argument("the gradients do not fit the adapter's tensors", "gradient_shape");
  }
  if (state.has_optimizer && (!fit(state.adam.first) || !fit(state.adam.second))) {
    return invalid_argument("the optimizer state does not fit the adapter's tensors: load the weights without it",
                            "optimizer_shape");
  }
  return {};
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
  for (const LoraPlace& place : lora_places(model, spec)) state.tensors.push_back(make_tensor(spec, place));
  return state;
}

}  // namespace tuft::engine
