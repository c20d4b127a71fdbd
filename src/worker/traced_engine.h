// Tracing of passes and decode steps: spans engine.forward and engine.backward under the current span, and sums of what
// passes and steps cost in time, arithmetic and memory traffic. Adapters need no tracing and are used directly.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "telemetry/attribute.h"
#include "worker/work_count.h"

namespace tuft::worker {

// Thread-confined like the engine. The engine and the clock outlive it.
class TracedTraining final : public engine::TrainingEngine {
 public:
  TracedTraining(engine::Engine& engine, const Clock& clock)
      : inner_(engine.training()), clock_(clock), work_(engine) {}

  const PassTotals& totals() const { return totals_; }
  // Sets the attributes of the spans of the next passes. What they borrow lives until they are set again.
  void set_pass_attributes(std::vector<telemetry::Attribute> attributes) { attributes_ = std::move(attributes); }
  // Ends the loss of a pass, which began with the end of its forward pass. backward() does so itself; to be called
  // after each pass, because one may have no backward pass.
  void end_loss(Nanos at);

  Status forward(const engine::Pack& pack, bool keep, std::span<float> logprobs) override;
  Status backward(std::span<const float> dloss_dlogprobs) override;
  void drop_pass() override { inner_.drop_pass(); }
  std::vector<Result<engine::OptimReport>> optim_steps(std::span<const engine::AdapterStep> steps) override {
    return inner_.optim_steps(steps);
  }

 private:
  engine::TrainingEngine& inner_;
  const Clock& clock_;
  PassWork work_;
  PassTotals totals_;
  std::optional<Nanos> loss_begin_;  // while there is a loss
  std::vector<telemetry::Attribute> attributes_;
};

class TracedDecoding final : public engine::DecodeEngine {
 public:
  TracedDecoding(engine::Engine& engine, const Clock& clock)
      : inner_(engine.decoding()), clock_(clock), work_(engine) {}

  const StepTotals& totals() const { return totals_; }

  Result<engine::SequenceId> open(const std::optional<engine::AdapterId>& adapter, uint64_t scope) override;
  Result<engine::SequenceId> fork(engine::SequenceId source) override;
  void close(engine::SequenceId sequence) override;
  int adopt_prefix(engine::SequenceId sequence, std::span<const int32_t> tokens) override;
  Status step(std::span<const engine::Feed> feeds, const engine::LogitsSink& sink) override;
  void run_tasks(int tasks, const Task& task) override { inner_.run_tasks(tasks, task); }
  int threads() const override { return inner_.threads(); }
  engine::KvUsage kv_usage() const override { return inner_.kv_usage(); }
  std::vector<engine::KvBlockTime> take_kv_block_times() override { return inner_.take_kv_block_times(); }

 private:
  template <typename Count>
  void or_close(engine::SequenceId sequence, const Count& count);

  engine::DecodeEngine& inner_;
  const Clock& clock_;
  StepWork work_;
  StepTotals totals_;
};

}  // namespace tuft::worker
