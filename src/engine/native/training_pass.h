// One forward pass over a pack, and its backward pass.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/back_end/target_rows.h"
#include "engine/engine.h"
#include "engine/native/model.h"
#include "engine/sample/distribution.h"

namespace tuft::engine::native {

class TrainingPass {
 public:
  TrainingPass(Model& model, int64_t activation_bytes_max)
      : model_(model),
        activation_bytes_max_(activation_bytes_max),
        distributions_(static_cast<size_t>(model.pool().threads())) {}

  // `adapters` of the pack's segments; everything in the pack was checked. Throws std::bad_alloc.
  void forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
               std::span<float> logprobs);
  // Needs a forward() with `keep`, whose activations it uses up.
  void backward(std::span<const float> gradient);

  bool kept() const { return kept_; }
  size_t targets() const { return rows_.targets.size(); }
  bool uses(const Adapter* adapter) const;
  void drop();

 private:
  void make_batch(const Pack& pack);
  void run_blocks(bool keep);
  BlockActivations& recomputed(int layer);
  void head_forward(bool keep, std::span<float> logprobs);
  // False where every gradient is zero.
  bool head_backward(std::span<const float> gradient, float* dx);
  void head_backward_piece(std::span<const float> gradient, std::span<const int> active, float* dx);
  // Copies rows_.rows[index] of the top of the blocks, for each index.
  void gather(std::span<const int> indices, float* to);
  // Multiplies the logits (or their gradient) of rows_.rows[index] by 1 / temperature.
  void temper(size_t index, float* logits) const;

  Model& model_;
  int64_t activation_bytes_max_;
  bool kept_ = false;
  std::vector<std::shared_ptr<Adapter>> adapters_;
  Batch batch_;
  std::vector<const float*> cache_pointers_;
  Arena keep_;   // until backward()
  Arena layer_;  // one block's share, where blocks are computed twice

  std::vector<BlockActivations> blocks_;  // of every block, or one where they are computed twice
  std::vector<float*> inputs_;            // of every block, and the top
  bool twice_ = false;

  TargetRows rows_;
  // Of each thread. The sampler's own, so that both give the same bits.
  std::vector<Distribution> distributions_;
  float* logits_ = nullptr;  // of all rows_, tempered, where they are kept
};

}  // namespace tuft::engine::native
