// Counts the arithmetic and the memory traffic of an engine from what it is asked to do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/model_cost.h"
#include "worker/traced_engine.h"

namespace tuft::worker {

// Confined to the engine thread. Told of what went well only.
class WorkCount {
 public:
  // Outlives it. Nothing is asked of it but numbers.
  explicit WorkCount(const engine::Engine& engine);

  void adapter_created(const engine::AdapterId& id, const engine::LoraSpec& spec);
  void adapter_cloned(const engine::AdapterId& source, const engine::AdapterId& copy);
  void adapter_removed(const engine::AdapterId& id) { adapters_.erase(id); }

  void passed_forward(const engine::Pack& pack, bool keep, PassTotals& totals);
  // Of the newest forward pass with `keep`.
  void passed_backward(std::span<const float> dloss_dlogprobs, PassTotals& totals);

  void sequence_opened(engine::SequenceId id, const std::optional<engine::AdapterId>& adapter);
  void sequence_forked(engine::SequenceId source, engine::SequenceId copy) { sequences_[copy] = sequences_[source]; }
  void sequence_grew(engine::SequenceId id, int tokens) { sequences_[id].length += tokens; }
  void sequence_closed(engine::SequenceId id) { sequences_.erase(id); }
  void stepped(std::span<const engine::Feed> feeds, StepTotals& totals);

 private:
  struct Adapter {
    engine::AdapterWeights weights;
    int64_t bytes = 0;
    uint64_t last_step = 0;  // that its bytes were counted in
  };
  using AdapterPtr = std::shared_ptr<Adapter>;
  struct Sequence {
    AdapterPtr adapter;
    int64_t length = 0;
  };

  const AdapterPtr& find(const engine::AdapterId& id) const;

  const engine::Engine& engine_;
  const engine::ModelCost cost_;
  const AdapterPtr none_;
  const double weight_bytes_;  // of one number of the base model
  double kv_bytes_ = 0;        // of one position
  std::unordered_map<engine::AdapterId, AdapterPtr> adapters_;
  std::unordered_map<engine::SequenceId, Sequence> sequences_;
  uint64_t steps_ = 0;

  // Of the pass that is kept.
  double blocks_backward_ = 0;
  struct TargetRow {
    size_t targets_end = 0;
    double head_backward = 0;
  };
  std::vector<TargetRow> rows_;
};

}  // namespace tuft::worker
