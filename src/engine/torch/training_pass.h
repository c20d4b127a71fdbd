// One forward pass over a pack, and its backward pass. The library's gradient graph is kept block by block, so that a
// pass that would need too much memory keeps the blocks' inputs only and computes each block a second time; logits
// are made in pieces and never kept. Internal. Functions may throw what libtorch throws.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/back_end/target_rows.h"
#include "engine/engine.h"
#include "engine/torch/transformer.h"

namespace tuft::engine::torch {

class TrainingPass {
 public:
  explicit TrainingPass(Transformer& transformer) : transformer_(transformer) {}
  // Over it blocks are computed twice.
  void set_activation_bytes_max(int64_t bytes) { activation_bytes_max_ = bytes; }

  // `adapters` of the pack's segments; everything in the pack was checked.
  void forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
               std::span<float> logprobs);
  // Needs a forward() with `keep`, whose activations it uses up.
  void backward(std::span<const float> gradient);

  bool kept() const { return batch_.has_value(); }
  size_t targets() const { return rows_.targets.size(); }
  bool uses(const Adapter* adapter) const;
  void drop();

 private:
  struct Block {
    at::Tensor input;
    at::Tensor output;  // with its graph; undefined where it is computed a second time
  };
  // Some of the rows that have targets.
  struct Piece {
    at::Tensor rows;                  // in the pack
    at::Tensor inverse_temperatures;  // [rows, 1]; undefined: all are 1
    std::vector<Adapter*> owners;
    std::vector<size_t> targets;
    at::Tensor target_rows;    // of the piece
    at::Tensor target_places;  // among its logits, one row after the other
  };

  void make_batch(const Pack& pack);
  void run_blocks(bool keep);
  bool trains_blocks() const;
  Piece make_piece(std::span<const int> indices) const;
  at::Tensor tempered(const Piece& piece, const at::Tensor& logits) const;
  void head_forward(std::span<float> logprobs);
  void head_backward(const Piece& piece, std::span<const float> gradient, at::Tensor& dx);

  Transformer& transformer_;
  int64_t activation_bytes_max_ = 0;
  std::vector<std::shared_ptr<Adapter>> adapters_;
  std::optional<Batch> batch_;
  std::vector<Adapter*> owners_;  // of each row
  std::vector<Block> blocks_;
  at::Tensor top_;
  TargetRows rows_;
};

}  // namespace tuft::engine::torch
