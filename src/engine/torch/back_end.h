// The back end on libtorch, for AssembledEngine. Internal. Members may throw libtorch's exceptions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/back_end/adapters.h"
#include "engine/back_end/open_sequence.h"
#include "engine/back_end/thread_pool.h"
#include "engine/engine.h"
#include "engine/torch/decode.h"
#include "engine/torch/device_clock.h"
#include "engine/torch/guarded.h"
#include "engine/torch/kv_cache.h"
#include "engine/torch/torch_engine.h"
#include "engine/torch/training_pass.h"

namespace tuft::engine::torch {

class BackEnd {
 public:
  using Adapter = torch::Adapter;
  using KvSequence = torch::KvSequence;
  using Sequence = OpenSequence<BackEnd>;

  BackEnd(ModelSpec spec, Weights weights, const Placement& placement, const TorchOptions& options);

  // See torch_captured_steps().
  int64_t captured_steps() const { return captured_steps_; }
  // See Attention::problem().
  const std::string& attention_problem() const { return transformer_.attention().problem(); }

  const ModelSpec& model() const { return transformer_.spec(); }
  std::string_view weights_dtype() const;
  DeviceTimes device_times() { return clock_.times(); }
  double peak_flops() const { return peak_flops_; }
  double assumed_peak_flops() const { return assumed_peak_flops_; }

  // The memory of the device is needed as soon as an adapter leaves.
  static constexpr bool kDetaches = false;
  template <typename Function>
  static auto guarded(const char* what, Function&& function) -> decltype(function()) {
    return torch::guarded(what, std::forward<Function>(function));
  }

  Result<std::unique_ptr<Adapter>> make_adapter(const AdapterState& state) {
    if (state.optimizer != Optimizer::kAdamW) {
      return invalid_argument("the optimizer " + std::string(optimizer_name(state.optimizer)) +
                                  " is not available with the torch back end; create the model with adamw",
                              "optimizer_unavailable");
    }
    return Adapter::create(model(), transformer_.placement(), state);
  }
  static std::unique_ptr<Adapter> clone(const Adapter& adapter) { return adapter.clone(); }
  int64_t bytes_of(const LoraSpec& spec, bool trains) const {
    return Adapter::bytes(model(), transformer_.placement(), spec, trains);
  }

  TrainingPass& pass() { return pass_; }
  void forward(const Pack& pack, const std::vector<std::shared_ptr<Adapter>>& adapters, bool keep,
               std::span<float> logprobs);
  void backward(std::span<const float> dloss_dlogprobs);
  std::vector<Result<OptimReport>> optim_steps(std::span<const StepOfAdapter<Adapter>> steps);

  KvCache& cache() { return cache_; }
  void step(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink);
  void run_tasks(int tasks, const DecodeEngine::Task& task) { pool_.run(tasks, task); }
  int threads() const { return pool_.threads(); }

 private:
  // Returns false, without an effect, if `decode_` cannot run the step.
  bool decode(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink);
  struct StepBatch {
    Batch batch;
    std::vector<int> first_rows;  // of each feed
  };
  StepBatch make_batch(std::span<const Feed> feeds, std::span<Sequence* const> fed);
  // Returns how many of the feeds, at least one, attention can gather the keys and values of at once.
  size_t first_part(std::span<const Feed> feeds, std::span<Sequence* const> fed) const;
  void step_part(std::span<const Feed> feeds, std::span<Sequence* const> fed, const LogitsSink& sink);
  void send_logits(std::span<const WantedRow> wanted, std::span<Sequence* const> fed, std::span<const int> first_rows,
                   const at::Tensor& top, const LogitsSink& sink);

  Transformer transformer_;
  DeviceClock clock_;
  ThreadPool pool_;  // libtorch's own threads are for its operations only
  TrainingPass pass_;
  KvCache cache_;
  int64_t gathered_keys_max_ = 0;
  int64_t captured_steps_ = 0;
  std::unique_ptr<Decode> decode_;  // null: not requested, or the cache has no limit
  const double peak_flops_;
  const double assumed_peak_flops_;
};

}  // namespace tuft::engine::torch
