// Adapter: a LoRA adapter on the device, with parameters, gradient and Adam moments in one flat f32 tensor each, and
// the factors that products read. Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "engine/adapter_store.h"
#include "engine/lora.h"
#include "engine/torch/device.h"
#include "engine/torch/lora_layout.h"
#include "engine/training_engine.h"

namespace tuft::engine::torch {

// It has more than 25 methods: short ones that give its tensors, and the steps of training.
class Adapter {
 public:
  // Returns kInvalidArgument unless the tensors are those that spec and model require.
  static Result<std::unique_ptr<Adapter>> create(const ModelSpec& model, const Placement& placement,
                                                 const AdapterState& state);
  // Returns a copy of the weights, without gradient and moments.
  std::unique_ptr<Adapter> clone() const;

  const LoraSpec& spec() const { return spec_; }
  static Optimizer optimizer() { return Optimizer::kAdamW; }
  const LoraLayout& layout() const { return layout_; }
  // The factors of products, [layout().size()], in the type of activations.
  const at::Tensor& factors() const { return factors_; }
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

  void prepare_gradients();  // allocates them if needed
  // Adds the gradients of the factors of a section.
  void add_gradients(LoraLayout::Section section, const at::Tensor& of_factors);
  void clear_gradients();
  void mark_gradients();
  bool restore_gradients();  // false without a mark
  // The parts of an optimizer step, between which the device is asked once for many adapters.
  at::Tensor grad_norm() const;  // f64, of no dimension
  // Sets everything in the report but `finite`.
  OptimReport optim_step(const AdamParams& params, double grad_norm);
  at::Tensor largest_value() const;  // f32, of no dimension; NaN if there is one

 private:
  Adapter() = default;
  void write_factors();
  // With the gradients. `step` is step_, which is already counted, as a tensor.
  void adamw(const AdamParams& params, const at::Tensor& step);
  void prepare_moments();
  at::Tensor flat_of(const std::vector<LoraTensor>& tensors) const;
  std::vector<LoraTensor> tensors_of(const at::Tensor& flat) const;  // undefined: zeros

  Placement placement_;
  LoraSpec spec_;
  LoraLayout layout_;
  int64_t parameters_ = 0;
  int64_t step_ = 0;
  uint64_t version_ = 0;
  std::vector<LoraLayer> lora_layers_;
  at::Tensor values_;  // A and B of each of them, [rank, in] and [out, rank]
  at::Tensor factors_;
  at::Tensor gradients_;  // these are undefined until their first use
  at::Tensor first_;
  at::Tensor second_;
  at::Tensor marked_gradients_;     // undefined if zero was marked
  bool gradients_touched_ = false;  // false: there are none, or all are zero
  bool marked_ = false;
};

}  // namespace tuft::engine::torch
