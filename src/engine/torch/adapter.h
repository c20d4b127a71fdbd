// A LoRA adapter on the device: parameters, gradients and Adam moments in one flat f32 tensor each, and the views that
// products read. Internal. Functions may throw what libtorch throws.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/lora.h"
#include "engine/torch/device.h"

namespace tuft::engine::torch {

// A and B of one linear layer, as checkpoints have them.
struct LoraPair : LoraPlace {
  int64_t offset = 0;  // of A in the flat tensors; B follows
  at::Tensor a;        // [rank, in], leaf of the gradient graph
  at::Tensor b;        // [out, rank]
  // For products without gradients, in the activations' type: A with the scale alpha / rank, and B. Views of
  // Adapter::active().
  at::Tensor a_scaled;
  at::Tensor b_active;
};

class Adapter {
 public:
  // kInvalidArgument where the tensors are not those that spec and model ask for.
  static Result<std::unique_ptr<Adapter>> create(const ModelSpec& model, const Place& place, const AdapterState& state);
  // The same weights under another owner: no gradient, no moments.
  std::unique_ptr<Adapter> clone() const;

  const LoraSpec& spec() const { return spec_; }
  int layers() const { return layers_; }
  const std::vector<LoraPair>& pairs() const { return pairs_; }
  // All of a_scaled and b_active, each pair's at its offset.
  const at::Tensor& active() const { return active_; }
  // Null where the adapter does not touch that layer.
  const LoraPair* find(Site site, int layer) const;
  bool has_block_sites() const { return spec_.train_attn || spec_.train_mlp; }
  // Another one each time the matrices change.
  uint64_t version() const { return version_; }
  void set_version(uint64_t version) { version_ = version; }

  int64_t parameters() const { return parameters_; }
  AdapterMemory memory() const;
  // What one takes at most, as Engine::adapter_bytes() has it.
  static int64_t bytes(const ModelSpec& model, const Place& place, const LoraSpec& spec, bool trains);

  AdapterState state(bool with_optimizer) const;
  std::vector<LoraTensor> gradients() const;
  bool has_gradient() const { return gradients_touched_; }  // false: there is none, or all of it is zero
  bool has_moments() const { return first_.defined(); }
  void assign(const AdapterState& state);  // which was checked, and has the same layers

  void prepare_gradients();  // and has backward() add to them
  void clear_gradients();
  void mark_gradients();
  bool restore_gradients();  // false without a mark
  OptimReport optim_step(const AdamParams& params);

 private:
  Adapter() = default;
  void make_views();
  void refresh();
  void prepare_moments();
  at::Tensor flat_of(const std::vector<LoraTensor>& tensors) const;
  std::vector<LoraTensor> tensors_of(const at::Tensor& flat) const;  // undefined: zeros

  Place place_;
  LoraSpec spec_;
  int layers_ = 0;
  int64_t parameters_ = 0;
  int64_t step_ = 0;
  uint64_t version_ = 0;
  std::vector<LoraPair> pairs_;  // as lora_places() has them
  at::Tensor values_;
  at::Tensor active_;
  at::Tensor gradients_;  // these are undefined until they are needed
  at::Tensor first_;
  at::Tensor second_;
  at::Tensor marked_gradients_;     // undefined where zero was marked
  bool gradients_touched_ = false;  // false: there are none, or all are zero
  bool marked_ = false;
};

}  // namespace tuft::engine::torch
