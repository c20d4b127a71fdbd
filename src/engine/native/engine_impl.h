// The Engine port on CPUs. fixed_shape asks for nothing here: every result element is summed in an order that depends
// on its own row only (ops/tile-inl.h), so results never depend on the company, and a decode step computes the same
// bits as a pass over the whole sequence.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/native/kv_cache.h"
#include "engine/native/model.h"
#include "engine/native/native_engine.h"
#include "engine/native/training_pass.h"

namespace tuft::engine::native {

class NativeEngine final : public Engine {
 public:
  NativeEngine(std::unique_ptr<ThreadPool> pool, ModelSpec spec, Weights weights, const NativeOptions& options);

  const ModelSpec& model() const override { return model_.spec(); }
  std::string_view weights_dtype() const override { return model_.weights().bf16 ? "bf16" : "f32"; }

  Status create_adapter(const AdapterId& id, const AdapterState& state) override;
  Status remove_adapter(const AdapterId& id) override;
  bool has_adapter(const AdapterId& id) const override { return adapters_.contains(id); }
  size_t adapter_count() const override { return adapters_.size(); }
  AdapterMemory adapter_memory() const override;
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
  void close_sequence(SequenceId sequence) override { sequences_.erase(sequence); }
  int adopt_prefix(SequenceId sequence, std::span<const int32_t> tokens) override;
  Status step(std::span<const Feed> feeds, const LogitsSink& sink) override;
  KvUsage kv_usage() const override { return cache_.usage(); }
  double peak_flops() const override { return peak_flops_; }
  std::vector<KvBlockTime> take_kv_block_times() override { return cache_.take_times(); }

 private:
  using AdapterPtr = std::shared_ptr<Adapter>;
  struct Sequence {
    AdapterPtr adapter;  // as it was when the sequence was opened; stays until the sequence is closed
    KvCache::Sequence cache;
  };
  // A feed of the step that is running.
  struct Fed {
    Sequence* sequence = nullptr;
    int first_row = 0;  // in the batch
  };

  Result<AdapterPtr> find_adapter(const AdapterId& id) const;
  // Of its segments; an error where the pack is not what it should be.
  Result<std::vector<AdapterPtr>> adapters_of(const Pack& pack) const;
  Result<AdapterPtr> check_step(const AdapterStep& step) const;
  // The next open_sequence() of the adapter shares nothing with what was computed until now.
  void renew(Adapter& adapter);
  Result<std::vector<Fed>> check_feeds(std::span<const Feed> feeds);
  Status make_room(std::span<const Feed> feeds, std::span<const Fed> fed);
  Batch make_batch(std::span<const Feed> feeds, std::vector<Fed>& fed);
  void run_step(std::span<const Feed> feeds, std::vector<Fed>& fed, const LogitsSink& sink);
  void send_logits(std::span<const Feed> feeds, std::span<const Fed> fed, const float* top, const LogitsSink& sink);
  SequenceId add_sequence(Sequence sequence);

  std::unique_ptr<ThreadPool> pool_;
  Model model_;
  TrainingPass pass_;
  std::unordered_map<AdapterId, AdapterPtr> adapters_;
  uint64_t last_version_ = 0;
  KvCache cache_;  // before the sequences, which give back to it
  std::map<SequenceId, Sequence> sequences_;
  SequenceId next_sequence_ = 1;
  Arena step_;
  const double peak_flops_;
};

}  // namespace tuft::engine::native
