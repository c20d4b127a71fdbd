// Generation on the adapters that samplers use.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "control/checkpoint_store.h"
#include "control/future_store.h"
#include "control/generation.h"
#include "control/model_backend.h"
#include "control/sampling_controller.h"

namespace tuft::control {

class GenerationImpl final : public Generation {
 public:
  // What is passed as a reference outlives this.
  GenerationImpl(const ModelBackends& backends, const CheckpointStore& checkpoints, FutureStore& futures,
                 std::shared_ptr<SamplingController> sampling, const Clock& clock)
      : backends_(backends),
        checkpoints_(checkpoints),
        futures_(futures),
        sampling_(std::move(sampling)),
        started_(clock.wall() / kSecond) {}

  Result<GenerationModel> resolve(const UserId& user, std::string_view model) const override;
  Result<ListedModels> models(const UserId& user, std::string_view after, size_t count_max) const override;
  Result<ListedModel> listed(const UserId& user, std::string_view model) const override;
  Result<ByteAccount::Hold> hold_memory(const UserId& user, int64_t bytes) override {
    return futures_.take_memory(user, bytes);
  }
  Result<Number> start(const UserId& user, GenerationRequest request, const telemetry::SpanContext& trace,
                       GenerationListener listener) override;
  void cancel(Number number) override { sampling_->cancel_stream(number); }

 private:
  using Source = SamplingController::StreamSource;
  Result<Source> find(const UserId& user, std::string_view model) const;
  ListedModel listed_base(const ModelBackend& backend) const { return {backend.name(), {}, {}, true, started_}; }

  const ModelBackends& backends_;
  const CheckpointStore& checkpoints_;
  FutureStore& futures_;
  const std::shared_ptr<SamplingController> sampling_;
  const int64_t started_;  // unix seconds
};

}  // namespace tuft::control
