// Operations that read or write checkpoints. Files are read and written on the file thread; what the engine holds is
// copied out before, or put in after.
#include "engine/checkpoint/checkpoint.h"
#include "worker/operation_base.h"

namespace tuft::worker {
namespace {

using Progress = Operation::Progress;

int64_t state_bytes(const engine::AdapterState& state) {
  const auto of = [](const std::vector<engine::LoraTensor>& tensors) {
    int64_t bytes = 0;
    for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.a.size() + tensor.b.size());
    return bytes * static_cast<int64_t>(sizeof(float));
  };
  return of(state.tensors) + of(state.adam.first) + of(state.adam.second);
}

class SaveState final : public ReplyingOperation<v1::SaveStateResponse> {
 public:
  SaveState(v1::SaveStateRequest request, Caller caller, Reply<v1::SaveStateResponse> reply)
      : ReplyingOperation(
            {"hf_model.save_state", "checkpoint.write.begin", "checkpoint.write.completed", "checkpoint.write.failed"},
            training_subject(request.adapter_id()), std::move(caller), std::move(reply)),
        request_(std::move(request)) {}

  void run_file() override {
    written_ = engine::write_checkpoint(request_.directory(), *model_, state_, request_.base_model());
    state_ = {};
  }

 private:
  Result<Progress> run(Bench& bench, v1::SaveStateResponse& response) override {
    if (!written_) {
      note({{"tuft.optimizer", request_.with_optimizer()}});
      TUFT_TRY(check_directory(request_.directory()));
      TUFT_ASSIGN(state_, bench.engine.export_adapter(adapter(), request_.with_optimizer()));
      model_ = &bench.engine.model();
      return Progress::kFile;
    }
    TUFT_TRY(*written_);
    note({{"tuft.size_bytes", **written_}});
    response.set_size_bytes(**written_);
    return Progress::kDone;
  }

  const v1::SaveStateRequest request_;
  const engine::ModelSpec* model_ = nullptr;
  engine::AdapterState state_;
  std::optional<Result<int64_t>> written_;
};

class LoadState final : public ReplyingOperation<v1::LoadStateResponse> {
 public:
  LoadState(v1::LoadStateRequest request, Caller caller, Reply<v1::LoadStateResponse> reply)
      : ReplyingOperation(
            {"hf_model.load_state", "checkpoint.read.begin", "checkpoint.read.completed", "checkpoint.read.failed"},
            training_subject(request.adapter_id()), std::move(caller), std::move(reply)),
        request_(std::move(request)) {}

  void run_file() override {
    state_ = engine::read_checkpoint(request_.directory(), *model_, request_.with_optimizer());
  }

 private:
  Result<Progress> run(Bench& bench, v1::LoadStateResponse&) override {
    if (!state_) {
      note({{"tuft.optimizer", request_.with_optimizer()}});
      TUFT_TRY(check_directory(request_.directory()));
      model_ = &bench.engine.model();
      return Progress::kFile;
    }
    TUFT_TRY(*state_);
    TUFT_TRY(bench.engine.import_adapter(adapter(), **state_));
    bench.metrics.load_from_disk.record(to_seconds(bench.clock.monotonic() - started()));
    return Progress::kDone;
  }

  const v1::LoadStateRequest request_;
  const engine::ModelSpec* model_ = nullptr;
  std::optional<Result<engine::AdapterState>> state_;
};

class AddSampler final : public ReplyingOperation<v1::AddSamplerResponse> {
 public:
  AddSampler(v1::AddSamplerRequest request, Caller caller, Reply<v1::AddSamplerResponse> reply)
      : ReplyingOperation(
            {"hf_model.add_adapter", "lora.load.begin", "lora.loaded", "lora.load.failed", /*life_cycle=*/true},
            sampler_subject(request.sampler_id()), std::move(caller), std::move(reply)),
        request_(std::move(request)) {}

  void run_file() override { state_ = engine::read_checkpoint(request_.directory(), *model_, false); }

 private:
  Result<Progress> run(Bench& bench, v1::AddSamplerResponse& response) override {
    if (!state_) {
      TUFT_TRY(check_directory(request_.directory()));
      if (bench.engine.has_adapter(adapter())) {
        return Error{ErrorCode::kAlreadyExists, "the sampler is loaded already", "sampler_exists"};
      }
      model_ = &bench.engine.model();
      return Progress::kFile;
    }
    TUFT_TRY(*state_);
    TUFT_TRY(bench.engine.create_adapter(adapter(), **state_));
    ++bench.samplers;
    bench.ranks[adapter()] = (*state_)->spec.rank;
    bench.metrics.load_from_disk.record(to_seconds(bench.clock.monotonic() - started()));
    response.set_size_bytes(state_bytes(**state_));
    note({{"tuft.lora_rank", (*state_)->spec.rank}, {"tuft.size_bytes", response.size_bytes()}});
    return Progress::kDone;
  }

  const v1::AddSamplerRequest request_;
  const engine::ModelSpec* model_ = nullptr;
  std::optional<Result<engine::AdapterState>> state_;
};

class RemoveSampler final : public ReplyingOperation<v1::RemoveSamplerResponse> {
 public:
  RemoveSampler(const v1::RemoveSamplerRequest& request, Caller caller, Reply<v1::RemoveSamplerResponse> reply)
      : ReplyingOperation({"hf_model.remove_adapter", "lora.unload.begin", "lora.unloaded", "lora.unload.failed"},
                          sampler_subject(request.sampler_id()), std::move(caller), std::move(reply)) {}

 private:
  Result<Progress> run(Bench& bench, v1::RemoveSamplerResponse&) override {
    bench.cancel_samples(adapter());
    TUFT_TRY(bench.engine.remove_adapter(adapter()));
    --bench.samplers;
    bench.ranks.erase(adapter());
    return Progress::kDone;
  }
};

}  // namespace

std::unique_ptr<Operation> make_save_state(v1::SaveStateRequest request, Caller caller,
                                           Reply<v1::SaveStateResponse> reply) {
  return std::make_unique<SaveState>(std::move(request), std::move(caller), std::move(reply));
}

std::unique_ptr<Operation> make_load_state(v1::LoadStateRequest request, Caller caller,
                                           Reply<v1::LoadStateResponse> reply) {
  return std::make_unique<LoadState>(std::move(request), std::move(caller), std::move(reply));
}

std::unique_ptr<Operation> make_add_sampler(v1::AddSamplerRequest request, Caller caller,
                                            Reply<v1::AddSamplerResponse> reply) {
  return std::make_unique<AddSampler>(std::move(request), std::move(caller), std::move(reply));
}

std::unique_ptr<Operation> make_remove_sampler(const v1::RemoveSamplerRequest& request, Caller caller,
                                               Reply<v1::RemoveSamplerResponse> reply) {
  return std::make_unique<RemoveSampler>(request, std::move(caller), std::move(reply));
}

}  // namespace tuft::worker
