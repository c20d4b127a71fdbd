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

// Of an adapter that trains, or of a sampler.
template <typename Request, typename Response>
class Save final : public ReplyingOperation<Response> {
 public:
  Save(OperationNames names, Subject subject, Request request, bool with_optimizer, Caller caller,
       Reply<Response> reply)
      : ReplyingOperation<Response>(names, std::move(subject), std::move(caller), std::move(reply)),
        request_(std::move(request)),
        with_optimizer_(with_optimizer) {}

  void run_file() override {
    written_ = engine::write_checkpoint(request_.directory(), *model_, state_, request_.base_model());
    state_ = {};
  }

 private:
  Result<Progress> run(Bench& bench, Response& response) override {
    if (!written_) {
      this->note({{"tuft.optimizer", with_optimizer_}});
      TUFT_TRY(check_directory(request_.directory()));
      TUFT_ASSIGN(state_, bench.engine.export_adapter(this->adapter(), with_optimizer_));
      model_ = &bench.engine.model();
      return Progress::kFile;
    }
    TUFT_TRY(*written_);
    this->note({{"tuft.size_bytes", **written_}});
    response.set_size_bytes(**written_);
    return Progress::kDone;
  }

  const Request request_;
  const bool with_optimizer_;
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
      if (bench.adapters.exists(adapter())) {
        return Error{ErrorCode::kAlreadyExists, "the sampler is loaded already", "sampler_exists"};
      }
      model_ = &bench.engine.model();
      return Progress::kFile;
    }
    TUFT_TRY(*state_);
    const int rank = (*state_)->spec.rank;
    response.set_size_bytes(state_bytes(**state_));
    TUFT_TRY(bench.adapters.create(adapter(), std::move(**state_), AdapterKind::kSampler));
    bench.ranks[adapter()] = rank;
    bench.metrics.load_from_disk.record(to_seconds(bench.clock.monotonic() - started()));
    note({{"tuft.lora_rank", rank}, {"tuft.size_bytes", response.size_bytes()}});
    return Progress::kDone;
  }

  const v1::AddSamplerRequest request_;
  const engine::ModelSpec* model_ = nullptr;
  std::optional<Result<engine::AdapterState>> state_;
};

class PublishAdapter final : public ReplyingOperation<v1::PublishAdapterResponse> {
 public:
  PublishAdapter(v1::PublishAdapterRequest request, Caller caller, Reply<v1::PublishAdapterResponse> reply)
      : ReplyingOperation({"hf_model.publish_adapter", "lora.publish.begin", "lora.published", "lora.publish.failed"},
                          training_subject(request.adapter_id()), std::move(caller), std::move(reply)),
        request_(std::move(request)) {}

 private:
  Result<Progress> run(Bench& bench, v1::PublishAdapterResponse& response) override {
    note({{"tuft.sampler_id", request_.sampler_id()}});
    if (request_.sampler_id().empty()) return invalid_argument("the request names no sampler");
    const engine::AdapterId sampler = sampler_adapter(request_.sampler_id());
    TUFT_ASSIGN(const int64_t bytes, bench.adapters.publish(adapter(), sampler));
    bench.ranks[sampler] = bench.ranks[adapter()];
    response.set_size_bytes(bytes);
    note({{"tuft.size_bytes", bytes}});
    return Progress::kDone;
  }

  const v1::PublishAdapterRequest request_;
};

class RemoveSampler final : public ReplyingOperation<v1::RemoveSamplerResponse> {
 public:
  RemoveSampler(const v1::RemoveSamplerRequest& request, Caller caller, Reply<v1::RemoveSamplerResponse> reply)
      : ReplyingOperation({"hf_model.remove_adapter", "lora.unload.begin", "lora.unloaded", "lora.unload.failed"},
                          sampler_subject(request.sampler_id()), std::move(caller), std::move(reply)) {}

  bool needs_adapter() const override { return false; }

 private:
  Result<Progress> run(Bench& bench, v1::RemoveSamplerResponse&) override {
    bench.cancel_samples(adapter());
    TUFT_TRY(bench.adapters.remove(adapter()));
    bench.ranks.erase(adapter());
    return Progress::kDone;
  }
};

}  // namespace

std::unique_ptr<Operation> make_save_state(v1::SaveStateRequest request, Caller caller,
                                           Reply<v1::SaveStateResponse> reply) {
  const OperationNames names = {"hf_model.save_state", "checkpoint.write.begin", "checkpoint.write.completed",
                                "checkpoint.write.failed"};
  Subject subject = training_subject(request.adapter_id());
  const bool with_optimizer = request.with_optimizer();
  return std::make_unique<Save<v1::SaveStateRequest, v1::SaveStateResponse>>(
      names, std::move(subject), std::move(request), with_optimizer, std::move(caller), std::move(reply));
}

std::unique_ptr<Operation> make_save_sampler(v1::SaveSamplerRequest request, Caller caller,
                                             Reply<v1::SaveSamplerResponse> reply) {
  const OperationNames names = {"hf_model.save_sampler", "checkpoint.write.begin", "checkpoint.write.completed",
                                "checkpoint.write.failed"};
  Subject subject = sampler_subject(request.sampler_id());
  return std::make_unique<Save<v1::SaveSamplerRequest, v1::SaveSamplerResponse>>(
      names, std::move(subject), std::move(request), false, std::move(caller), std::move(reply));
}

std::unique_ptr<Operation> make_publish_adapter(v1::PublishAdapterRequest request, Caller caller,
                                                Reply<v1::PublishAdapterResponse> reply) {
  return std::make_unique<PublishAdapter>(std::move(request), std::move(caller), std::move(reply));
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
