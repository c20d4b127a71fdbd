// The back end on CPUs, for AssembledEngine. The order in which an element of a result is summed depends on its own row
// only (ops/tile-inl.h). So a result has the same bits whatever else shares a pass or a step, and a decode step
// computes the same bits as a pass over the whole sequence.
#pragma once

#include <memory>
#include <new>
#include <vector>

#include "engine/back_end/checks.h"
#include "engine/back_end/open_sequence.h"
#include "engine/engine.h"
#include "engine/native/kv_cache.h"
#include "engine/native/model.h"
#include "engine/native/native_engine.h"
#include "engine/native/optimizer.h"
#include "engine/native/training_pass.h"

namespace tuft::engine::native {

class BackEnd {
 public:
  using Adapter = native::Adapter;
  using KvSequence = native::KvSequence;
  using Sequence = OpenSequence<BackEnd>;

  BackEnd(std::unique_ptr<ThreadPool> pool, ModelSpec spec, Weights weights, const NativeOptions& options);

  const ModelSpec& model() const { return model_.spec(); }
  std::string_view weights_dtype() const { return model_.weights().bf16 ? "bf16" : "f32"; }
  DeviceTimes device_times() { return {}; }
  double peak_flops() const { return peak_flops_; }
  double assumed_peak_flops() const { return peak_flops_; }

  static constexpr bool kDetaches = true;
  template <typename Function>
  static auto guarded(const char* what, Function&& function) -> decltype(function()) {
    try {
      return function();
    } catch (const std::bad_alloc&) {
      return out_of_memory(what);
    }
  }

  Result<std::unique_ptr<Adapter>> make_adapter(const AdapterState& state) const {
    return Adapter::create(model_.spec(), state);
  }
  std::unique_ptr<Adapter> clone(const Adapter& adapter, bool with_moments = false) {
    return adapter.clone(*pool_, with_moments);
  }
  int64_t bytes_of(const LoraSpec& spec, bool trains) const { return Adapter::bytes(model_.spec(), spec, trains); }

  TrainingPass& pass() { return pass_; }
  void forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
               std::span<float> logprobs) {
    pass_.forward(pack, adapters, keep, logprobs);
  }
  void backward(std::span<const float> dloss_dlogprobs) { pass_.backward(dloss_dlogprobs); }
  std::vector<Result<OptimReport>> optim_steps(std::span<const StepOfAdapter<Adapter>> steps) {
    return step_together(steps, *pool_);
  }

  KvCache& cache() { return cache_; }
  void step(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink);
  void run_tasks(int tasks, const DecodeEngine::Task& task) { pool_->run(tasks, task); }
  int threads() const { return pool_->threads(); }

 private:
  struct StepBatch {
    Batch batch;
    std::vector<int> first_rows;  // of each feed
  };
  static StepBatch make_batch(std::span<const Feed> feeds, std::span<Sequence* const> fed);
  void send_logits(std::span<const WantedRow> wanted, std::span<Sequence* const> fed, std::span<const int> first_rows,
                   const float* top, const LogitsSink& sink);

  std::unique_ptr<ThreadPool> pool_;
  Model model_;
  TrainingPass pass_;
  KvCache cache_;
  Arena step_;
  const double peak_flops_;
};

}  // namespace tuft::engine::native
