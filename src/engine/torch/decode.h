// Decode: steps with one token per sequence, computed in few shapes. Rows, keys and adapters are padded to the next
// power of two, the rows of an adapter lie side by side, and the inputs have fixed addresses. So the whole step, down
// to the logits, is captured once per shape and then replayed (graph_capture.h). Internal. Functions may throw
// libtorch's exceptions.
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

#include "engine/torch/graph_capture.h"
#include "engine/torch/kv_cache.h"
#include "engine/torch/lora_slots.h"
#include "engine/torch/transformer.h"

namespace tuft::engine::torch {

class Decode {
 public:
  // See make_graph_capture().
  using MakeGraphCapture =
      std::function<std::unique_ptr<GraphCapture>(const Placement& placement, const GraphCapture* sibling)>;
  // Requires a cache with a limit, so that its memory does not move. A step that would gather more than `keys_max` keys
  // for a layer, with those that pad it, is left to its caller.
  Decode(Transformer& transformer, KvCache& cache, int64_t keys_max, MakeGraphCapture make_graph_capture);

  struct Row {
    Adapter* adapter = nullptr;
    int32_t token = 0;
    const BlockPool::Sequence* held = nullptr;  // with room for the token
  };
  // Writes the keys and values of the rows and returns their logits, [rows or more, vocab] in f32, valid until the next
  // call. Returns nullopt if such a step costs more than it saves, if the adapters have different shapes, or if there
  // is no memory for it. Then an ordinary step writes the same keys and values.
  std::optional<at::Tensor> step(std::span<const Row> rows);

  // Returns why captures are no longer used; empty: they are used.
  const std::string& problem() const { return problem_; }

 private:
  struct Shape {
    int64_t rows = 0;
    int64_t blocks = 0;             // blocks of the KV cache per row
    int64_t slot_rows = 0;          // consecutive rows that share a slot of an adapter
    LoraSlots* adapters = nullptr;  // null: the base model alone
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
    at::Tensor order;        // the row of each row of logits
    at::Tensor table;        // [rows, blocks]
    at::Tensor logits;
    std::unique_ptr<GraphCapture> graph;
  };

  // The rows of one adapter that share a slot, as indices into the rows of the step.
  struct Slot {
    Adapter* adapter = nullptr;
    std::vector<size_t> rows;
  };
  struct Arrangement {
    Shape shape;
    std::vector<Slot> slots;  // without adapters one with all rows
  };
  // Divides the rows among slots. Returns nullopt if there would be too much padding, or no room for slots.
  std::optional<Arrangement> arrange(std::span<const Row> rows);
  bool fit_keys(std::span<const Row> rows, Shape& shape) const;
  LoraSlots* slots_for(const Adapter& example, int64_t count);  // null: they would be too large
  Step& step_of(const Shape& shape);
  int64_t logits_bytes(const Shape& shape) const;
  void make_room_for(const Shape& shape);
  void fill(Step& step, std::span<const Row> rows, const std::vector<Slot>& slots);
  at::Tensor compute(const Step& step) const;
  // Computes the step, captures it, replays it, and compares the results. Returns the computed result. The step is
  // forgotten if it cannot be captured.
  at::Tensor capture(Step& step);
  // Forgets what is not captured. For some steps no further shape is.
  void defer_captures();
  std::optional<at::Tensor> captured_step(std::span<const Row> rows);

  Transformer& transformer_;
  KvCache& cache_;
  const int64_t keys_max_;
  MakeGraphCapture make_graph_capture_;
  std::list<std::unique_ptr<LoraSlots>> slots_;
  int64_t slot_bytes_ = 0;
  std::list<Step> steps_;  // most recently used first
  int64_t bytes_max_ = 0;  // of all copies of adapters in slots, and of all logits of steps_
  int until_capture_ = 0;  // steps in which nothing is captured
  std::string problem_;
};

}  // namespace tuft::engine::torch
