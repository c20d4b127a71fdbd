// Model: the base model with its weights and kernels, shared by training passes and decode steps.
#pragma once

#include <span>
#include <vector>

#include "engine/native/transformer.h"

namespace tuft::engine::native {

// Logits are computed in pieces of rows of at most this size, so that memory does not grow with rows times vocabulary.
inline constexpr int64_t kLogitsBytes = int64_t{64} << 20;

class Model {
 public:
  Model(ModelSpec spec, Weights weights, ThreadPool& pool)
      : spec_(std::move(spec)),
        weights_(std::move(weights)),
        gemm_(pool),
        linear_(gemm_, scratch_),
        transformer_(spec_, weights_, gemm_, scratch_) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelSpec& spec() const { return spec_; }
  const Weights& weights() const { return weights_; }
  ThreadPool& pool() { return gemm_.pool(); }
  Arena& scratch() { return scratch_; }
  Transformer& transformer() { return transformer_; }

  int logits_rows_max() const {
    return static_cast<int>(std::max<int64_t>(1, kLogitsBytes / (int64_t{4} * spec_.vocab_size)));
  }

  // Rows that pass through the output layer. `normed` is [rows][hidden], `logits` [rows][vocab].
  struct HeadRows {
    int rows = 0;
    std::span<const Run> runs;
    float* normed = nullptr;
    float* logits = nullptr;
    LoraHidden hidden;
  };
  void head_forward(HeadRows& head, Arena& keep) {
    const LinearUse use{&weights_.head, TargetModule::kLmHead, 0, head.logits, &head.hidden};
    linear_.forward({head.normed, head.rows, spec_.hidden_size, head.runs}, {&use, 1}, keep);
  }
  void head_hidden(HeadRows& head, Arena& keep) {
    const LinearUse use{&weights_.head, TargetModule::kLmHead, 0, head.logits, &head.hidden};
    linear_.hidden({head.normed, head.rows, spec_.hidden_size, head.runs}, {&use, 1}, keep);
  }
  // Requires that `logits` holds its gradient. Writes the gradient of `normed` to dnormed.
  void head_backward(HeadRows& head, float* dnormed) {
    const LinearUse use{&weights_.head, TargetModule::kLmHead, 0, head.logits, &head.hidden};
    linear_.backward({head.normed, head.rows, spec_.hidden_size, head.runs}, {&use, 1}, dnormed);
  }

 private:
  ModelSpec spec_;
  Weights weights_;
  Gemm gemm_;
  Arena scratch_;
  LoraLinear linear_;
  Transformer transformer_;
};

}  // namespace tuft::engine::native
