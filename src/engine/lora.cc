#include "engine/lora.h"

#include <cmath>

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

LoraTensor make_tensor(const ModelSpec& model, const LoraSpec& spec, Site site, int layer) {
  const SiteShape shape = site_shape(model, site);
  const auto rank = static_cast<size_t>(spec.rank);
  LoraTensor tensor;
  tensor.site = site;
  tensor.layer = layer;
  tensor.a.resize(rank * static_cast<size_t>(shape.in));
  tensor.b.resize(static_cast<size_t>(shape.out) * rank);
  const uint64_t place = static_cast<uint64_t>(layer) * 16 + static_cast<uint64_t>(site);
  fill_uniform(tensor.a, 1.0F / std::sqrt(static_cast<float>(shape.in)), mix(mix(spec.seed) ^ place));
  return tensor;
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

int64_t parameters_of(const ModelSpec& model, const LoraSpec& spec) {
  int64_t count = 0;
  for (const Site site : spec.sites()) {
    const SiteShape shape = site_shape(model, site);
    const int64_t layers = site == Site::kLmHead ? 1 : model.layers;
    count += layers * spec.rank * (int64_t{shape.in} + shape.out);
  }
  return count;
}

AdapterState make_adapter(const ModelSpec& model, const LoraSpec& spec) {
  AdapterState state;
  state.spec = spec;
  const std::vector<Site> sites = spec.sites();
  for (int layer = 0; layer < model.layers; ++layer) {
    for (const Site site : sites) {
      if (site != Site::kLmHead) state.tensors.push_back(make_tensor(model, spec, site, layer));
    }
  }
  if (spec.train_unembed) state.tensors.push_back(make_tensor(model, spec, Site::kLmHead, 0));
  return state;
}

}  // namespace tuft::engine
