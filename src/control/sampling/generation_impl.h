// Text generation with SampleStreams.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/futures/operation_budget.h"
#include "control/sampling/generation.h"
#include "control/sampling/sampling_controller.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

class GenerationImpl final : public Generation {
 public:
  // Requires: everything that is passed as a reference outlives this.
  GenerationImpl(const ModelBackends& backends, const CheckpointStore& checkpoints, OperationBudget& budget,
                 std::shared_ptr<SamplingController> sampling, const Clock& clock)
      : backends_(backends),
        checkpoints_(checkpoints),
        budget_(budget),
        sampling_(std::move(sampling)),
        started_(clock.wall() / kSecond) {}

  Result<GenerationModel> resolve(const UserId& user, std::string_view model) const override;
  Result<ListedModels> models(const UserId& user, std::string_view after, size_t count_max) const override;
  Result<ListedModel> listed(const UserId& user, std::string_view model) const override;
  Result<ByteAccount::Hold> hold_memory(const UserId& user, int64_t bytes) override {
    return budget_.take_memory(user, bytes);
  }
  Result<Number> start(const UserId& user, GenerationRequest request, const telemetry::SpanContext& trace,
                       GenerationListener listener) override;
  void cancel(Number number) override { sampling_->streams().cancel(number); }

 private:
  Result<StreamSource> find(const UserId& user, std::string_view model) const;
  ListedModel listed_base(const Model& model) const { return {model.name(), {}, {}, true, started_}; }

  const ModelBackends& backends_;
  const CheckpointStore& checkpoints_;
  OperationBudget& budget_;
  const std::shared_ptr<SamplingController> sampling_;
  const int64_t started_;  // unix seconds
};

}  // namespace tuft::control
