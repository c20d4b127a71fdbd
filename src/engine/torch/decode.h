// Steps in which every sequence gets one token, in few shapes: rows, keys and adapters are filled up to the next power
// of two, and inputs lie in memory that stays where it is. So the whole step, down to the logits, can be recorded once
// a shape and played again (recording.h). Internal. Functions may throw what libtorch throws.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/torch/kv_cache.h"
#include "engine/torch/lora_slots.h"
#include "engine/torch/recording.h"
#include "engine/torch/transformer.h"

namespace tuft::engine::torch {

class Decode {
 public:
  // As make_recording().
  using MakeRecording = std::function<std::unique_ptr<Recording>(const Place& place, const Recording* sibling)>;
  // The cache has a limit: its memory does not move.
  Decode(Transformer& transformer, KvCache& cache, MakeRecording make_recording);

  struct Row {
    Adapter* adapter = nullptr;
    int32_t token = 0;
    const BlockPool::Sequence* held = nullptr;  // with room for the token
  };
  // Writes the rows' keys and values and gives their logits, [rows or more, vocab] f32, which are overwritten by the
  // next call. nullopt, and nothing done, where such a step would cost more than it saves, or the adapters are of
  // several shapes.
  std::optional<at::Tensor> step(std::span<const Row> rows);

  // Why recordings are not used any more; empty: they are.
  const std::string& problem() const { return problem_; }

 private:
  struct Shape {
    int64_t rows = 0;
    int64_t blocks = 0;  // of the KV cache, of a row
    int64_t slots = 0;   // of adapters; 0: the base model alone
    int64_t slot_rows = 0;
    LoraSlots* adapters = nullptr;
    bool operator==(const Shape&) const = default;
  };
  struct Step {
    Shape shape;
    at::Tensor host;         // of `inputs`
    at::Tensor inputs;       // all of the following
    at::Tensor tokens;       // [rows], as the next four
    at::Tensor positions;    // of the tokens
    at::Tensor write_slots;  // of their keys and values
    at::Tensor lengths;      // of the sequences, with the token
    at::Tensor places;       // in the adapters' products
    at::Tensor table;        // [rows, blocks]
    at::Tensor slot_rows;    // [slots * slot_rows] among the rows
    at::Tensor logits;
    std::unique_ptr<Recording> recording;
  };

  std::optional<Shape> shape_of(std::span<const Row> rows);
  LoraSlots* slots_for(const Adapter& example, int64_t count);  // null: they would be too large
  Step& step_of(const Shape& shape);
  void fill(Step& step, std::span<const Row> rows);
  at::Tensor compute(const Step& step) const;
  // Computes it, records it, plays it, and compares the two.
  at::Tensor record(Step& step);

  Transformer& transformer_;
  KvCache& cache_;
  MakeRecording make_recording_;
  std::list<std::unique_ptr<LoraSlots>> slots_;
  int64_t slot_bytes_ = 0;
  std::list<Step> steps_;  // the last used first
  std::string problem_;
};

}  // namespace tuft::engine::torch
