// TrainingPass: one forward pass over a pack, and its backward pass.
//
// A pass is long if its activations are over their limit or do not fit into what is free: then blocks keep only their
// input. Its memory stays for the next pass, unless even that (pass_memory.h) is over the limit or does not fit: such a
// pass asks whether there is memory for all that it needs, takes it at once, and gives it back. Otherwise one long
// datum would take from then on what KV cache and adapters were promised.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/back_end/target_rows.h"
#include "engine/native/model.h"
#include "engine/native/pass_memory.h"
#include "engine/sample/distribution.h"
#include "engine/training_engine.h"

namespace tuft::engine::native {

class TrainingPass {
 public:
  // The options are those of NativeOptions.
  TrainingPass(Model& model, int64_t activation_bytes_max, std::function<std::optional<int64_t>()> free_memory)
      : model_(model),
        activation_bytes_max_(activation_bytes_max),
        free_memory_(std::move(free_memory)),
        distributions_(static_cast<size_t>(model.pool().threads())) {}

  // `adapters` has one entry per segment. Requires a checked pack. Throws std::bad_alloc, also if less memory is free
  // than the pass and its backward pass need.
  void forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
               std::span<float> logprobs);
  // Requires kept(). Consumes the activations.
  void backward(std::span<const float> gradient);

  bool kept() const { return kept_; }
  size_t targets() const { return rows_.targets.size(); }
  bool uses(const Adapter* adapter) const;
  void drop();

  // Returns what pass_floats() returns for a pack.
  PassFloats memory_of(const Pack& pack, bool backward, bool recompute) const;
  // Returns the size of the memory that it holds, and the most that was taken at a time, in floats.
  size_t held() const;
  size_t most() const { return keep_.most() + layer_.most() + model_.scratch().most(); }

 private:
  bool has_room(const PassFloats& need) const;
  void ask_for_memory(const Pack& pack, bool backward);
  void give_memory_back();
  void make_batch(const Pack& pack);
  void run_blocks(bool keep);
  BlockActivations& recomputed(int layer);
  void head_forward(bool keep, std::span<float> logprobs);
  // Returns false if every gradient is zero.
  bool head_backward(std::span<const float> gradient, float* dx);
  void head_backward_piece(std::span<const float> gradient, std::span<const int> active, float* dx);
  // Copies rows_.rows[index] of the last block's output, for each index.
  void gather(std::span<const int> indices, float* to);
  // Multiplies the logits (or their gradient) of rows_.rows[index] by 1 / temperature.
  void temper(size_t index, float* logits) const;

  Model& model_;
  const int64_t activation_bytes_max_;
  const std::function<std::optional<int64_t>()> free_memory_;  // may be empty
  bool kept_ = false;
  bool is_long_ = false;
  bool gives_back_ = false;
  std::vector<std::shared_ptr<Adapter>> adapters_;
  Batch batch_;
  std::vector<const float*> cache_pointers_;
  Arena keep_;   // until backward()
  Arena layer_;  // memory of one block, if recompute_

  std::vector<BlockActivations> blocks_;  // of every block; a single one if recompute_
  std::vector<float*> inputs_;            // of every block, and the output of the last block
  bool recompute_ = false;

  TargetRows rows_;
  // One per thread. The sampler uses the same class, so that both give the same bits.
  std::vector<Distribution> distributions_;
  float* logits_ = nullptr;  // of all rows_, divided by the temperature; null: not kept
};

}  // namespace tuft::engine::native
