// The Engine port on libtorch. Internal.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/back_end/adapter_table.h"
#include "engine/back_end/sequence_table.h"
#include "engine/engine.h"
#include "engine/torch/decode.h"
#include "engine/torch/device_clock.h"
#include "engine/torch/kv_cache.h"
#include "engine/torch/torch_engine.h"
#include "engine/torch/training_pass.h"

namespace tuft::engine::torch {

class TorchEngine final : public Engine {
 public:
  // May throw what libtorch throws, as every member does that is not of the port.
  TorchEngine(ModelSpec spec, Weights weights, const Place& place, const TorchOptions& options);

  // As torch_recorded_steps() has it.
  int64_t recorded_steps() const { return recorded_steps_; }
  // As Attention has it.
  const std::string& attention_problem() const { return transformer_.attention().problem(); }

  const ModelSpec& model() const override { return transformer_.spec(); }
  std::string_view weights_dtype() const override;

  Status create_adapter(const AdapterId& id, const AdapterState& state) override;
  Status remove_adapter(const AdapterId& id) override;
  bool has_adapter(const AdapterId& id) const override { return adapters_.contains(id); }
  size_t adapter_count() const override { return adapters_.size(); }
  AdapterMemory adapter_memory() const override { return adapters_.memory(); }
  Result<AdapterState> export_adapter(const AdapterId& id, bool with_optimizer) const override;
  Status import_adapter(const AdapterId& id, const AdapterState& state) override;
  Status clone_adapter(const AdapterId& source, const AdapterId& copy) override;
  Result<AdapterState> take_adapter(const AdapterId& id) override;
  int64_t adapter_bytes(const LoraSpec& spec, bool trains) const override;

  Status forward(const Pack& pack, bool keep, std::span<float> logprobs) override;
  Status backward(std::span<const float> dloss_dlogprobs) override;

  std::vector<Result<OptimReport>> optim_steps(std::span<const AdapterStep> steps) override;
  Status clear_gradients(const AdapterId& id) override;
  Status mark_gradients(const AdapterId& id) override;
  Status restore_gradients(const AdapterId& id) override;
  Result<std::vector<LoraTensor>> gradients(const AdapterId& id) const override;

  Result<SequenceId> open_sequence(const std::optional<AdapterId>& adapter, uint64_t scope) override;
  Result<SequenceId> fork_sequence(SequenceId source) override;
  void close_sequence(SequenceId sequence) override;
  int adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) override;
  Status step(std::span<const Feed> feeds, const LogitsSink& sink) override;
  KvUsage kv_usage() const override { return cache_.usage(); }
  DeviceTimes device_times() override { return clock_.times(); }
  double peak_flops() const override { return peak_flops_; }
  std::vector<KvBlockTime> take_kv_block_times() override { return cache_.pool().take_times(); }

 private:
  using AdapterPtr = AdapterTable<Adapter>::Pointer;
  struct Sequence {
    AdapterPtr adapter;  // as it was when the sequence was opened; stays until the sequence is closed
    BlockPool::Sequence held;
  };

  Result<OptimReport> optim_step_of(const AdapterStep& step);
  // The next open_sequence() of the adapter shares nothing with what was computed until now.
  void renew(Adapter& adapter);
  Status make_room(std::span<const Feed> feeds, std::span<Sequence* const> fed);
  // False, and nothing done, where the step is not one for `decode_`.
  bool decode(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink);
  struct StepBatch {
    Batch batch;
    std::vector<int> first_rows;  // of each feed
  };
  StepBatch make_batch(std::span<const Feed> feeds, std::span<Sequence* const> fed);
  void send_logits(std::span<const WantedRow> wanted, std::span<Sequence* const> fed, std::span<const int> first_rows,
                   const at::Tensor& top, const LogitsSink& sink);

  Transformer transformer_;
  DeviceClock clock_;
  TrainingPass pass_;
  AdapterTable<Adapter> adapters_;
  KvCache cache_;
  int64_t recorded_steps_ = 0;
  std::unique_ptr<Decode> decode_;  // null: not wanted, or the cache has no limit
  const double peak_flops_;
  SequenceTable<Sequence> sequences_;
};

}  // namespace tuft::engine::torch
