// Counts the arithmetic and the memory traffic of passes and decode steps from what the engine is asked to do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/model_cost.h"

namespace tuft::worker {

// Sums since the start. The arithmetic is that of engine/model_cost.h.
struct PassTotals {
  Nanos forward = 0;
  Nanos loss = 0;  // from a forward pass to its backward pass, or to the end
  Nanos backward = 0;
  int64_t tokens = 0;
  int64_t sequences = 0;
  double forward_flops = 0;   // the output layer counts for tokens with a target
  double backward_flops = 0;  // the output layer counts for tokens whose loss has a gradient; 0 where none has

  friend PassTotals operator-(const PassTotals& left, const PassTotals& right) {
    return {left.forward - right.forward,
            left.loss - right.loss,
            left.backward - right.backward,
            left.tokens - right.tokens,
            left.sequences - right.sequences,
            left.forward_flops - right.forward_flops,
            left.backward_flops - right.backward_flops};
  }
};

// Sums since the start.
struct StepTotals {
  Nanos time = 0;
  double prefill_flops = 0;
  double decode_flops = 0;  // of sequences that got one token
  // The least traffic with memory: every weight and every adapter once a step, keys and values once a sequence.
  double bytes_read = 0;
  double bytes_written = 0;
};

// The work of passes. Told of passes that succeeded. Confined to the engine thread; the engine outlives it.
class PassWork {
 public:
  explicit PassWork(engine::Engine& engine);

  void add_forward(const engine::Pack& pack, bool keep, PassTotals& totals);
  // Adds the backward pass of the newest forward pass with `keep`.
  void add_backward(std::span<const float> dloss_dlogprobs, PassTotals& totals);

 private:
  engine::Engine& engine_;
  const engine::ModelCost cost_;
  // The numbers of the pass that is retained.
  double blocks_backward_ = 0;
  struct TargetRow {
    size_t targets_end = 0;
    double head_backward = 0;
  };
  std::vector<TargetRow> rows_;
};

// The work of decode steps, and the lengths of the open sequences. Told of calls that succeeded. Confined to the engine
// thread; the engine outlives it.
class StepWork {
 public:
  explicit StepWork(engine::Engine& engine);

  void opened(engine::SequenceId id, const std::optional<engine::AdapterId>& adapter);
  void forked(engine::SequenceId source, engine::SequenceId copy) { sequences_[copy] = sequences_[source]; }
  void grew(engine::SequenceId id, int tokens) { sequences_[id].length += tokens; }
  void closed(engine::SequenceId id);
  void add_step(std::span<const engine::Feed> feeds, StepTotals& totals);

 private:
  // The sequences of one adapter share it.
  struct Adapter {
    engine::AdapterId id;
    engine::AdapterWeights weights;
    int64_t bytes = 0;
    uint64_t last_step = 0;  // the newest step in which its bytes were counted
  };
  struct Sequence {
    std::shared_ptr<Adapter> adapter;
    int64_t length = 0;
  };

  engine::Engine& engine_;
  const engine::ModelCost cost_;
  const std::shared_ptr<Adapter> none_;
  const double weight_bytes_;                                                 // of one number of the base model
  double kv_bytes_ = 0;                                                       // of one position
  std::unordered_map<engine::AdapterId, std::shared_ptr<Adapter>> adapters_;  // those of open sequences
  std::unordered_map<engine::SequenceId, Sequence> sequences_;
  uint64_t steps_ = 0;
};

}  // namespace tuft::worker
