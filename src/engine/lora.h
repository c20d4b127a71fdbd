// LoRA adapters: W x is replaced by W x + (alpha / rank) B A x at chosen linear layers (Hu et al. 2021).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "engine/model_spec.h"

namespace tuft::engine {

using AdapterId = Id<struct AdapterTag>;

// The linear layers that can carry an adapter. kLmHead exists once, the others in each transformer block.
enum class TargetModule : uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown, kLmHead };
inline constexpr std::array<TargetModule, 7> kBlockModules = {
    TargetModule::kQ,    TargetModule::kK,  TargetModule::kV,   TargetModule::kO,
    TargetModule::kGate, TargetModule::kUp, TargetModule::kDown};

// Returns the name in checkpoints: "q_proj" ... "down_proj", "lm_head".
std::string_view module_name(TargetModule module);
// Returns in_features and out_features of a linear layer.
struct ModuleShape {
  int in = 0;
  int out = 0;
};
ModuleShape module_shape(const ModelSpec& model, TargetModule module);

struct LoraSpec {
  int rank = 0;
  float alpha = 0;
  bool train_attn = true;
  bool train_mlp = true;
  bool train_unembed = true;
  uint64_t seed = 0;

  float scale() const { return alpha / static_cast<float>(rank); }
  std::vector<TargetModule> target_modules() const;  // in TargetModule order
};

// One linear layer that an adapter changes. Its A is [rank, in] and its B is [out, rank].
struct LoraLayer {
  TargetModule module = TargetModule::kQ;
  int layer = 0;  // 0 for kLmHead
  int in = 0;
  int out = 0;
};
// Returns the layers of an adapter ordered by transformer block, then by module, lm_head last. All lists of tensors of
// an adapter have this order.
std::vector<LoraLayer> lora_layers(const ModelSpec& model, const LoraSpec& spec);
// Returns the index of (module, layer) in that list for a model of `layers` blocks; -1 if it has no adapter.
int lora_layer_index(int layers, const LoraSpec& spec, TargetModule module, int layer);

// Returns the number of parameters in all A and B.
int64_t parameters_of(const ModelSpec& model, const LoraSpec& spec);

// The A and B of one layer, f32, row-major: a is [rank, in], b is [out, rank].
struct LoraTensor {
  TargetModule module = TargetModule::kQ;
  int layer = 0;  // 0 for kLmHead
  std::vector<float> a;
  std::vector<float> b;
};

bool fits(const LoraTensor& tensor, const LoraLayer& layer, int rank);

// The algorithm of optimizer steps (docs/optimizers.md). An adapter keeps that with which it was created.
enum class Optimizer : uint8_t { kAdamW, kDimuon };
std::string_view optimizer_name(Optimizer optimizer);  // "adamw", "dimuon"
std::optional<Optimizer> find_optimizer(std::string_view name);

// The state that an optimizer keeps between its steps, in the same order and shape as the tensors it belongs to.
struct Moments {
  int64_t step = 0;
  std::vector<LoraTensor> first;   // AdamW: m; dimuon: the momentum
  std::vector<LoraTensor> second;  // AdamW: v; dimuon: empty
};

// An adapter outside the engine, as in checkpoints. Tensors are in the order of lora_layers().
struct AdapterState {
  LoraSpec spec;
  std::vector<LoraTensor> tensors;
  Optimizer optimizer = Optimizer::kAdamW;
  bool has_optimizer = false;         // whether there are moments
  Moments moments;                    // of `optimizer`
  std::vector<LoraTensor> gradients;  // accumulated; empty: none. Not in checkpoints
};

// Returns kInvalidArgument unless rank and alpha are valid and the tensors, and the gradients and moments if present,
// have the shapes that spec and model require.
Status check_adapter(const ModelSpec& model, const AdapterState& state);
// Returns kInvalidArgument that names both optimizers unless the moments of a checkpoint are those of `optimizer`.
Status check_same_optimizer(Optimizer optimizer, Optimizer of_moments);
// Returns kInvalidArgument unless `spec` and `other` have the same rank and the same layers.
Status check_same_layers(const LoraSpec& spec, const LoraSpec& other);

// Returns a new adapter with PEFT's initialisation: A uniform in +-1/sqrt(in) (kaiming with a = sqrt 5), B zero. The
// same seed, spec and model give the same bits everywhere.
AdapterState make_adapter(const ModelSpec& model, const LoraSpec& spec);

}  // namespace tuft::engine
