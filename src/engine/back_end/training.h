// Training: the TrainingEngine of a back end (assembled_engine.h says what a BackEnd is).
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "engine/back_end/adapters.h"
#include "engine/back_end/checks.h"
#include "engine/training_engine.h"

namespace tuft::engine {

template <typename BackEnd>
class Training final : public TrainingEngine {
 public:
  Training(BackEnd& back_end, Adapters<BackEnd>& adapters) : back_end_(back_end), adapters_(adapters) {}

  Status forward(const Pack& pack, bool keep, std::span<float> logprobs) override {
    back_end_.pass().drop();
    Status status = back_end_.guarded("a training pass", [&]() -> Status {
      TUFT_TRY(check_forward(back_end_.model(), pack, logprobs));
      TUFT_ASSIGN(const auto adapters, adapters_.find_all(pack));
      back_end_.forward(pack, adapters, keep, logprobs);
      return {};
    });
    if (!status.ok()) back_end_.pass().drop();
    return status;
  }

  Status backward(std::span<const float> dloss_dlogprobs) override {
    auto& pass = back_end_.pass();
    Status status = back_end_.guarded("the backward pass", [&]() -> Status {
      TUFT_TRY(check_backward(pass.kept(), pass.targets(), dloss_dlogprobs));
      back_end_.backward(dloss_dlogprobs);
      return {};
    });
    if (!status.ok()) pass.drop();
    return status;
  }

  void drop_pass() override { back_end_.pass().drop(); }

  std::vector<Result<OptimReport>> optim_steps(std::span<const AdapterStep> steps) override {
    std::vector<Result<OptimReport>> results;
    std::vector<StepOfAdapter<typename BackEnd::Adapter>> together;
    std::vector<size_t> indices;  // of `together` in `results`
    const std::vector<Status> checked = check_steps(steps);
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto adapter = adapters_.find(steps[i].adapter);
      if (!checked[i].ok() || !adapter.ok()) {
        results.emplace_back(checked[i].ok() ? adapter.error() : checked[i].error());
        continue;
      }
      if (Status same = check_optimizer((*adapter)->optimizer(), steps[i].params); !same.ok()) {
        results.emplace_back(std::move(same).error());
        continue;
      }
      adapters_.begin_change(**adapter);
      indices.push_back(i);
      together.push_back({adapter->get(), steps[i].params});
      results.emplace_back(OptimReport());
    }
    auto reports = back_end_.optim_steps(together);
    for (size_t i = 0; i < reports.size(); ++i) results[indices[i]] = std::move(reports[i]);
    return results;
  }

 private:
  BackEnd& back_end_;
  Adapters<BackEnd>& adapters_;
};

}  // namespace tuft::engine
