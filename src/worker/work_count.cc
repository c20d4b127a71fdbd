#include "worker/work_count.h"

#include <algorithm>

namespace tuft::worker {

WorkCount::WorkCount(const engine::Engine& engine)
    : engine_(engine),
      cost_(engine.model()),
      none_(std::make_shared<Adapter>()),
      weight_bytes_(engine.weights_dtype() == "bf16" ? 2 : 4) {
  const engine::KvUsage usage = engine.kv_usage();
  if (usage.positions > 0) kv_bytes_ = static_cast<double>(usage.block) / usage.positions;
}

const WorkCount::AdapterPtr& WorkCount::find(const engine::AdapterId& id) const {
  const auto found = adapters_.find(id);
  return found == adapters_.end() ? none_ : found->second;
}

void WorkCount::adapter_created(const engine::AdapterId& id, const engine::LoraSpec& spec) {
  adapters_[id] = std::make_shared<Adapter>(
      Adapter{engine::adapter_weights(engine_.model(), spec), engine_.adapter_bytes(spec, false)});
}

void WorkCount::adapter_cloned(const engine::AdapterId& source, const engine::AdapterId& copy) {
  adapters_[copy] = std::make_shared<Adapter>(*find(source));
}

void WorkCount::passed_forward(const engine::Pack& pack, bool keep, PassTotals& totals) {
  blocks_backward_ = 0;
  rows_.clear();
  auto target = pack.targets.begin();
  for (const engine::Segment& segment : pack.segments) {
    const engine::AdapterWeights& adapter = find(segment.adapter)->weights;
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

void WorkCount::passed_backward(std::span<const float> dloss_dlogprobs, PassTotals& totals) {
  double head = 0;
  size_t at = 0;
  for (const TargetRow& row : rows_) {
    const auto own = dloss_dlogprobs.subspan(at, row.targets_end - at);
    if (std::any_of(own.begin(), own.end(), [](float gradient) { return gradient != 0.0F; })) head += row.head_backward;
    at = row.targets_end;
  }
  if (head > 0) totals.backward_flops += head + blocks_backward_;
}

void WorkCount::sequence_opened(engine::SequenceId id, const std::optional<engine::AdapterId>& adapter) {
  sequences_[id] = {adapter ? find(*adapter) : none_, 0};
}

void WorkCount::stepped(std::span<const engine::Feed> feeds, StepTotals& totals) {
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
