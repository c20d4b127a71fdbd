// LoRA adapters: W x is replaced by W x + (alpha / rank) B A x at chosen linear layers (Hu et al. 2021).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "engine/model_spec.h"

namespace tuft::engine {

using AdapterId = Id<struct AdapterTag>;

// The linear layers that can carry an adapter. kLmHead stands once, the others in each transformer block.
enum class Site : uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown, kLmHead };
inline constexpr std::array<Site, 7> kBlockSites = {Site::kQ,    Site::kK,  Site::kV,   Site::kO,
                                                    Site::kGate, Site::kUp, Site::kDown};

// "q_proj" ... "down_proj", "lm_head": the name in checkpoints.
std::string_view site_name(Site site);
// in_features and out_features of the layer that carries it.
struct SiteShape {
  int in = 0;
  int out = 0;
};
SiteShape site_shape(const ModelSpec& model, Site site);

struct LoraSpec {
  int rank = 0;
  float alpha = 0;
  bool train_attn = true;
  bool train_mlp = true;
  bool train_unembed = true;
  uint64_t seed = 0;

  float scale() const { return alpha / static_cast<float>(rank); }
  std::vector<Site> sites() const;  // in Site order
};

// A linear layer that an adapter touches. There A is [rank, in] and B is [out, rank].
struct LoraPlace {
  Site site = Site::kQ;
  int layer = 0;  // 0 for kLmHead
  int in = 0;
  int out = 0;
};
// Ordered by layer, then by site, lm_head last: the order of everything that is said of an adapter's tensors.
std::vector<LoraPlace> lora_places(const ModelSpec& model, const LoraSpec& spec);
// Where (site, layer) is among these, of a model of `layers` layers; -1: the adapter does not touch it.
int lora_place_index(int layers, const LoraSpec& spec, Site site, int layer);

// Numbers in all its A and B.
int64_t parameters_of(const ModelSpec& model, const LoraSpec& spec);

// One A and B of one layer, f32, row-major: a is [rank, in], b is [out, rank].
struct LoraTensor {
  Site site = Site::kQ;
  int layer = 0;  // 0 for kLmHead
  std::vector<float> a;
  std::vector<float> b;
};

bool fits(const LoraTensor& tensor, const LoraPlace& place, int rank);

// Adam moments, in the same order and shape as the tensors they belong to.
struct AdamState {
  int64_t step = 0;
  std::vector<LoraTensor> first;   // m
  std::vector<LoraTensor> second;  // v
};

// An adapter outside the engine: what checkpoints hold. Tensors are in the order of lora_places().
struct AdapterState {
  LoraSpec spec;
  std::vector<LoraTensor> tensors;
  bool has_optimizer = false;
  AdamState adam;
  std::vector<LoraTensor> gradients;  // accumulated; empty: none. Not in checkpoints
};

// kInvalidArgument unless it has the tensors, the gradients and moments if any, and a rank and alpha that spec and
// model ask for.
Status check_adapter(const ModelSpec& model, const AdapterState& state);
// kInvalidArgument unless an adapter of `spec` can go on as one of `other`: by rank and layers.
Status check_same_layers(const LoraSpec& spec, const LoraSpec& other);

// A fresh adapter as PEFT makes it: A uniform in +-1/sqrt(in) (kaiming with a = sqrt 5), B zero. The same seed, spec
// and model give the same bits everywhere.
AdapterState make_adapter(const ModelSpec& model, const LoraSpec& spec);

}  // namespace tuft::engine
