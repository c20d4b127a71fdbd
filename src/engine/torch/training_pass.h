// TrainingPass: one forward pass over a pack, and its backward pass. It keeps the gradient graph of libtorch. A pass
// that would need too much memory keeps only the inputs of its first blocks, and recomputes each of them. Logits are
// computed in pieces and never kept. Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/back_end/target_rows.h"
#include "engine/torch/transformer.h"
#include "engine/training_engine.h"

namespace tuft::engine::torch {

class TrainingPass {
 public:
  explicit TrainingPass(Transformer& transformer) : transformer_(transformer) {}
  // As many blocks are recomputed as the limit requires.
  void set_activation_bytes_max(int64_t bytes) { activation_bytes_max_ = bytes; }

  // `adapters` has one entry per segment. Requires a checked pack.
  void forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
               std::span<float> logprobs);
  // Requires kept(). Consumes the activations.
  void backward(std::span<const float> gradient);

  bool kept() const { return batch_.has_value(); }
  size_t targets() const { return rows_.targets.size(); }
  bool uses(const Adapter* adapter) const;
  void drop();

 private:
  // A piece of the rows that have targets.
  struct Piece {
    at::Tensor rows;                  // in the pack
    at::Tensor inverse_temperatures;  // [rows, 1]; undefined: all are 1
    std::vector<Adapter*> owners;
    std::vector<size_t> targets;
    at::Tensor target_rows;    // rows of the piece
    at::Tensor target_places;  // indices into the piece's logits, flattened
  };

  void make_batch(const Pack& pack);
  void run_blocks(bool keep);
  void backward_blocks(at::Tensor dx);
  bool trains_blocks() const;
  Piece make_piece(std::span<const int> indices) const;
  at::Tensor tempered(const Piece& piece, const at::Tensor& logits) const;
  void head_forward(std::span<float> logprobs);
  void head_backward(const Piece& piece, std::span<const float> gradient, at::Tensor& dx);

  Transformer& transformer_;
  int64_t activation_bytes_max_ = 0;
  std::vector<std::shared_ptr<Adapter>> adapters_;
  std::optional<Batch> batch_;
  std::vector<Adapter*> owners_;    // of each row
  std::vector<at::Tensor> inputs_;  // of the first blocks, which are recomputed, and of the first that is not
  at::Tensor output_;               // of the last block, with the graph of those that are not recomputed, if any
  at::Tensor top_;                  // the same without a graph
  TargetRows rows_;
};

}  // namespace tuft::engine::torch
