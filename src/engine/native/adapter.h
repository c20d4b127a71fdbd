// A LoRA adapter inside the engine: its matrices in the forms that products read, gradients and Adam moments.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/lora.h"
#include "engine/native/buffer.h"
#include "engine/native/thread_pool.h"

namespace tuft::engine::native {

// A parameter with its gradient and moments, all of one size: places in the adapter's blocks. Gradient and moments come
// with the first use.
struct Parameter {
  std::span<float> value;
  std::span<float> gradient;
  std::span<float> first;
  std::span<float> second;
};

// A and B of one linear layer. The scale alpha / rank is inside a_scaled and b_scaled, so that x * a_scaled * b
// is the whole adapter and dy * b_scaled is the gradient of x A^T.
struct LoraPair : LoraPlace {
  int rank = 0;
  Parameter a;                // [rank][in]
  Parameter b;                // [rank][out]: the transpose of the B of checkpoints
  std::span<float> a_scaled;  // [in][rank]
  std::span<float> b_scaled;  // [out][rank]
};

class Adapter {
 public:
  // kInvalidArgument where the tensors are not those that spec and model ask for. Throws std::bad_alloc.
  static Result<std::unique_ptr<Adapter>> create(const ModelSpec& model, const AdapterState& state);
  // Another one with these weights, without gradients and moments. Throws std::bad_alloc.
  std::unique_ptr<Adapter> clone(ThreadPool& pool) const;

  const LoraSpec& spec() const { return spec_; }
  // Null where the adapter does not touch that layer.
  LoraPair* find(Site site, int layer);
  bool has_block_sites() const { return spec_.train_attn || spec_.train_mlp; }
  // Another one each time the matrices change; what was computed with one is not mixed with another.
  uint64_t version() const { return version_; }
  void set_version(uint64_t version) { version_ = version; }

  AdapterMemory memory() const;
  AdapterState state(bool with_optimizer) const;
  std::vector<LoraTensor> gradients() const;
  bool has_gradient() const { return gradients_touched_; }  // false: there is none, or all of it is zero
  bool has_moments() const { return !first_.empty(); }
  // Takes tensors and, where there are any, moments. The state was checked, and its layers are the same.
  void assign(const AdapterState& state);

  // Makes gradients writable (zero at first). Throws std::bad_alloc.
  void prepare_gradients();
  void clear_gradients();
  // As Engine has them. Throws std::bad_alloc.
  void mark_gradients();
  bool restore_gradients();  // false without a mark

  // What steps of the optimizer are made of (optimizer.h).
  std::span<LoraPair> pairs() { return pairs_; }
  int64_t parameters() const { return parameters_; }
  int64_t steps() const { return step_; }
  int64_t count_step() { return ++step_; }
  void prepare_moments();  // zero at first. Throws std::bad_alloc.
  // After the values of the pair's A (or B) have changed.
  void refresh(LoraPair& pair, bool is_a) const;
  void consume_gradients();  // they are zero now

 private:
  void place_weights();
  void drop_mark();

  LoraSpec spec_;
  int layers_ = 0;
  std::vector<LoraPair> pairs_;  // as lora_places() has them
  // One block a kind, so that a large adapter lies on huge pages, and is copied in one piece.
  Floats weights_;
  Floats gradients_;  // empty until the first one
  Floats first_;      // moments: empty before the first step
  Floats second_;
  int64_t parameters_ = 0;
  int64_t step_ = 0;
  uint64_t version_ = 0;
  bool gradients_touched_ = false;  // false: there are none, or all are zero
  bool marked_ = false;
  Floats marked_gradients_;  // empty where zero was marked
};

}  // namespace tuft::engine::native
