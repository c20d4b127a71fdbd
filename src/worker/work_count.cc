#include "worker/work_count.h"

#include <algorithm>

namespace tuft::worker {

PassWork::PassWork(engine::Engine& engine) : engine_(engine), cost_(engine.model()) {}

void PassWork::add_forward(const engine::Pack& pack, bool keep, PassTotals& totals) {
  blocks_backward_ = 0;
  rows_.clear();
  auto target = pack.targets.begin();
  for (const engine::Segment& segment : pack.segments) {
    const engine::LoraSpec* spec = engine_.adapters().spec(segment.adapter);
    const auto adapter = spec == nullptr ? engine::AdapterWeights() : engine::adapter_weights(engine_.model(), *spec);
    const int tokens = segment.end - segment.begin;
    totals.forward_flops += cost_.forward(adapter, 0, tokens);
    if (keep) blocks_backward_ += cost_.backward(adapter, tokens);
    while (target != pack.targets.end() && target->row < segment.end) {
      const int row = target->row;
      while (target != pack.targets.end() && target->row == row) ++target;
      totals.forward_flops += cost_.head_forward(adapter, 1);
      if (keep) rows_.push_back({static_cast<size_t>(target - pack.targets.begin()), cost_.head_backward(adapter, 1)});
    }
  }
}

void PassWork::add_backward(std::span<const float> dloss_dlogprobs, PassTotals& totals) {
  double head = 0;
  size_t at = 0;
  for (const TargetRow& row : rows_) {
    const auto own = dloss_dlogprobs.subspan(at, row.targets_end - at);
    if (std::any_of(own.begin(), own.end(), [](float gradient) { return gradient != 0.0F; })) head += row.head_backward;
    at = row.targets_end;
  }
  if (head > 0) totals.backward_flops += head + blocks_backward_;
}

StepWork::StepWork(engine::Engine& engine)
    : engine_(engine),
      cost_(engine.model()),
      none_(std::make_shared<Adapter>()),
      weight_bytes_(engine.weights_dtype() == "bf16" ? 2 : 4) {
  const engine::KvUsage usage = engine.decoding().kv_usage();
  if (usage.positions > 0) kv_bytes_ = static_cast<double>(usage.block) / usage.positions;
}

void StepWork::opened(engine::SequenceId id, const std::optional<engine::AdapterId>& adapter) {
  const engine::LoraSpec* spec = adapter ? engine_.adapters().spec(*adapter) : nullptr;
  if (spec == nullptr) {
    sequences_[id] = {none_, 0};
    return;
  }
  const int64_t bytes = engine_.adapters().bytes_of(*spec, false);
  std::shared_ptr<Adapter>& shared = adapters_[*adapter];
  // The id may have another adapter by now.
  if (shared == nullptr || shared->bytes != bytes) {
    shared = std::make_shared<Adapter>(Adapter{*adapter, engine::adapter_weights(engine_.model(), *spec), bytes});
  }
  sequences_[id] = {shared, 0};
}

void StepWork::closed(engine::SequenceId id) {
  const auto node = sequences_.extract(id);
  if (node.empty()) return;
  const auto shared = adapters_.find(node.mapped().adapter->id);
  const bool last = node.mapped().adapter.use_count() == 2;  // this one and that in adapters_
  if (last && shared != adapters_.end() && shared->second == node.mapped().adapter) adapters_.erase(shared);
}

void StepWork::add_step(std::span<const engine::Feed> feeds, StepTotals& totals) {
  ++steps_;
  bool head = false;
  for (const engine::Feed& feed : feeds) {
    Sequence& sequence = sequences_[feed.sequence];
    Adapter& adapter = *sequence.adapter;
    const auto tokens = static_cast<int64_t>(feed.tokens.size());
    const double flops =
        cost_.forward(adapter.weights, sequence.length, tokens) + cost_.head_forward(adapter.weights, feed.logits);
    (tokens == 1 ? totals.decode_flops : totals.prefill_flops) += flops;
    sequence.length += tokens;
    totals.bytes_read += kv_bytes_ * static_cast<double>(sequence.length);
    totals.bytes_written += kv_bytes_ * static_cast<double>(tokens);
    if (adapter.last_step != steps_) totals.bytes_read += static_cast<double>(adapter.bytes);
    adapter.last_step = steps_;
    head |= feed.logits > 0;
  }
  totals.bytes_read += weight_bytes_ * static_cast<double>(cost_.block_weights() + (head ? cost_.head_weights() : 0));
}

}  // namespace tuft::worker
