// Adapter: a LoRA adapter in the native back end, with its matrices in the layouts that products read, its gradient and
// its optimizer's moments.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/adapter_store.h"
#include "engine/back_end/thread_pool.h"
#include "engine/lora.h"
#include "engine/native/buffer.h"

namespace tuft::engine::native {

// A parameter with its gradient and moments, all of one size, as views of the adapter's blocks. Gradient and moments
// are empty until their first use, and `second` stays so with dimuon.
struct Parameter {
  std::span<float> value;
  std::span<float> gradient;
  std::span<float> first;
  std::span<float> second;
};

// A and B of one linear layer. a_scaled and b_scaled include the scale alpha / rank: x * a_scaled * b is the output of
// the adapter, and dy * b_scaled is the gradient of x A^T.
struct LoraPair : LoraLayer {
  int rank = 0;
  Parameter a;                // [rank][in]
  Parameter b;                // [rank][out]: the transpose of the B of checkpoints
  std::span<float> a_scaled;  // [in][rank]
  std::span<float> b_scaled;  // [out][rank]
};

// It has more than 25 methods: short ones that give the views of its matrices, and the steps of training.
class Adapter {
 public:
  // Returns kInvalidArgument unless the tensors are those that spec and model require. Throws std::bad_alloc.
  static Result<std::unique_ptr<Adapter>> create(const ModelSpec& model, const AdapterState& state);
  // Returns a copy of the weights, and of the moments if `with_moments`, without gradient. Throws std::bad_alloc.
  std::unique_ptr<Adapter> clone(ThreadPool& pool, bool with_moments) const;
  // Returns the most bytes that an adapter can occupy (AdapterStore::bytes_of()).
  static int64_t bytes(const ModelSpec& model, const LoraSpec& spec, bool trains);

  const LoraSpec& spec() const { return spec_; }
  Optimizer optimizer() const { return optimizer_; }
  void set_optimizer(Optimizer optimizer) { optimizer_ = optimizer; }  // requires !has_moments()
  // Returns null if the adapter has no such layer.
  LoraPair* find(TargetModule module, int layer);
  bool has_block_modules() const { return spec_.train_attn || spec_.train_mlp; }
  // The version changes with the matrices. Cached keys and values of different versions are never mixed.
  uint64_t version() const { return version_; }
  void set_version(uint64_t version) { version_ = version; }

  AdapterMemory memory() const;
  AdapterState state(bool with_optimizer) const;
  std::vector<LoraTensor> gradients() const;
  bool has_gradient() const { return gradients_touched_; }  // false: there is none, or it is zero
  bool has_moments() const { return !first_.empty(); }
  // Replaces the tensors, and the moments if the state has any. Requires check_adapter(), check_same_layers() and
  // check_same_optimizer().
  void assign(const AdapterState& state);

  // Allocates a zero gradient if there is none. Throws std::bad_alloc.
  void prepare_gradients();
  void clear_gradients();
  // See AdapterStore. Throw std::bad_alloc.
  void mark_gradients();
  bool restore_gradients();  // false without a mark

  // These serve the optimizer (optimizer.h).
  std::span<LoraPair> pairs() { return pairs_; }
  int64_t parameters() const { return parameters_; }
  int64_t steps() const { return step_; }
  int64_t count_step() { return ++step_; }
  void prepare_moments();  // zero at first; throws std::bad_alloc
  // Updates the scaled copy of A (or B) after its values have changed.
  void refresh(LoraPair& pair, bool is_a) const;
  void consume_gradients();  // to be called after a step, which zeroes them

 private:
  void place_weights(bool zero);
  void place_moments(bool zero);
  void drop_mark();

  LoraSpec spec_;
  Optimizer optimizer_ = Optimizer::kAdamW;
  int layers_ = 0;
  std::vector<LoraPair> pairs_;  // in the order of lora_layers()
  // One block per kind, so that a large adapter lies on huge pages and is copied in one piece.
  Floats weights_;
  Floats gradients_;  // empty until the first gradient
  Floats first_;      // moments; empty before the first step
  Floats second_;     // AdamW only
  int64_t parameters_ = 0;
  int64_t step_ = 0;
  uint64_t version_ = 0;
  bool gradients_touched_ = false;  // false: there are none, or all are zero
  bool marked_ = false;
  Floats marked_gradients_;  // empty if zero was marked
};

}  // namespace tuft::engine::native
