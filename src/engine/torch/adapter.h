// Adapter: a LoRA adapter on the device, with parameters, gradient and Adam moments in one flat f32 tensor each, and
// the views that products read. Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "engine/adapter_store.h"
#include "engine/lora.h"
#include "engine/torch/device.h"
#include "engine/training_engine.h"

namespace tuft::engine::torch {

// A and B of one linear layer, as in checkpoints.
struct LoraPair : LoraLayer {
  int64_t offset = 0;  // of A in the flat tensors; B follows
  at::Tensor a;        // [rank, in]
  at::Tensor b;        // [out, rank]
  // Of the same shapes; undefined before Adapter::prepare_gradients().
  at::Tensor a_gradient;
  at::Tensor b_gradient;
  // The factors of products, in the type of activations: A with the scale alpha / rank, and B. Views of
  // Adapter::active().
  at::Tensor a_scaled;
  at::Tensor b_active;
};

// It has more than 25 methods: short ones that give the views of its tensors, and the steps of training.
class Adapter {
 public:
  // Returns kInvalidArgument unless the tensors are those that spec and model require.
  static Result<std::unique_ptr<Adapter>> create(const ModelSpec& model, const Placement& placement,
                                                 const AdapterState& state);
  // Returns a copy of the weights, without gradient and moments.
  std::unique_ptr<Adapter> clone() const;

  const LoraSpec& spec() const { return spec_; }
  static Optimizer optimizer() { return Optimizer::kAdamW; }
  int layers() const { return layers_; }
  const std::vector<LoraPair>& pairs() const { return pairs_; }
  // All of a_scaled and b_active, at the offset of each pair.
  const at::Tensor& active() const { return active_; }
  // Returns null if the adapter has no such layer.
  const LoraPair* find(TargetModule module, int layer) const;
  bool has_block_modules() const { return spec_.train_attn || spec_.train_mlp; }
  // The version changes with the matrices.
  uint64_t version() const { return version_; }
  void set_version(uint64_t version) { version_ = version; }

  int64_t parameters() const { return parameters_; }
  AdapterMemory memory() const;
  // Returns the most bytes that an adapter can occupy (AdapterStore::bytes_of()).
  static int64_t bytes(const ModelSpec& model, const Placement& placement, const LoraSpec& spec, bool trains);

  AdapterState state(bool with_optimizer) const;
  std::vector<LoraTensor> gradients() const;
  bool has_gradient() const { return gradients_touched_; }  // false: there is none, or it is zero
  bool has_moments() const { return first_.defined(); }
  void assign(const AdapterState& state);  // checked, and with the same layers

  void prepare_gradients();  // allocates them if needed; LoraLeaves::collect() adds to them
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

  Placement placement_;
  LoraSpec spec_;
  int layers_ = 0;
  int64_t parameters_ = 0;
  int64_t step_ = 0;
  uint64_t version_ = 0;
  std::vector<LoraPair> pairs_;  // in the order of lora_layers()
  at::Tensor values_;
  at::Tensor active_;
  at::Tensor gradients_;  // these are undefined until their first use
  at::Tensor first_;
  at::Tensor second_;
  at::Tensor marked_gradients_;     // undefined if zero was marked
  bool gradients_touched_ = false;  // false: there are none, or all are zero
  bool marked_ = false;
};

}  // namespace tuft::engine::torch
