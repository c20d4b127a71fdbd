// Operations on samplers and checkpoints. Another thread reads and writes the files, in a directory or in a bucket; the
// engine thread exports an adapter before, or imports it afterwards.
#include <filesystem>

#include "engine/checkpoint/checkpoint.h"
#include "worker/bucket_checkpoints.h"
#include "worker/operation_base.h"

namespace tuft::worker {
namespace {

using Progress = Operation::Progress;

// Where a checkpoint is, and how to get there.
class CheckpointPlace {
 public:
  // An absolute path is a directory; another one is in the bucket. Which of them a client reaches is the control
  // plane's decision.
  static Result<CheckpointPlace> find(const std::string& directory, BucketCheckpoints* bucket) {
    if (std::filesystem::path(directory).is_absolute()) return CheckpointPlace(directory, nullptr);
    if (bucket != nullptr && !directory.empty()) return CheckpointPlace(directory, bucket);
    return invalid_argument("the checkpoint directory must be an absolute path: this worker has no bucket");
  }

  Result<int64_t> write(const engine::ModelSpec& model, const engine::AdapterState& state,
                        const std::string& base_model) const {
    return bucket_ == nullptr ? engine::write_checkpoint(directory_, model, state, base_model)
                              : bucket_->write(directory_, model, state, base_model);
  }
  // Makes an adapter of what it reads, so that the engine thread has only to take it.
  Result<engine::DetachedPointer> read(engine::Engine& engine, bool with_optimizer) const {
    TUFT_ASSIGN(engine::AdapterState state, bucket_ == nullptr
                                                ? engine::read_checkpoint(directory_, engine.model(), with_optimizer)
                                                : bucket_->read(directory_, engine.model(), with_optimizer));
    return engine.adapters().make(std::move(state));
  }

 private:
  CheckpointPlace(const std::string& directory, BucketCheckpoints* bucket) : directory_(directory), bucket_(bucket) {}

  std::string directory_;
  BucketCheckpoints* bucket_;
};

// Writes a checkpoint of an adapter (SaveState) or of a sampler (SaveSampler).
template <typename Method>
class Save final : public MethodOperation<Method> {
 public:
  Save(OperationNames names, Call<Method> call) : MethodOperation<Method>(names, std::move(call)) {}

  bool saves() const override { return true; }
  Status before_file(EngineContext& context) override {
    const telemetry::ContextScope scope(this->span().context());
    TUFT_ASSIGN(copy_, context.engine.adapters().copy(this->adapter(), with_optimizer()));
    return {};
  }
  void run_file() override {
    const telemetry::ContextScope scope(this->span().context());
    int64_t size = 0;
    const Status written = copy_->visit([&](const engine::AdapterState& state) -> Status {
      TUFT_ASSIGN(size, place_->write(*model_, state, this->request().base_model()));
      return {};
    });
    written_ = written.ok() ? Result<int64_t>(size) : Result<int64_t>(copy_of(written.error()));
    copy_.reset();
  }

 private:
  bool with_optimizer() const {
    if constexpr (requires { this->request().with_optimizer(); }) return this->request().with_optimizer();
    return false;
  }

  Result<Progress> run(EngineContext& context, typename Method::Response& response) override {
    if (!written_) {
      this->note({{"tuft.optimizer", with_optimizer()}});
      TUFT_ASSIGN(place_, CheckpointPlace::find(this->request().directory(), context.bucket));
      model_ = &context.engine.model();
      return Progress::kFile;
    }
    TUFT_TRY(*written_);
    this->note({{"tuft.size_bytes", **written_}});
    response.set_size_bytes(**written_);
    return Progress::kDone;
  }

  std::optional<CheckpointPlace> place_;
  const engine::ModelSpec* model_ = nullptr;
  engine::DetachedPointer copy_;
  std::optional<Result<int64_t>> written_;
};

class LoadState final : public MethodOperation<rpc::LoadState> {
 public:
  explicit LoadState(Call<rpc::LoadState> call)
      : MethodOperation(
            {"hf_model.load_state", "checkpoint.read.begin", "checkpoint.read.completed", "checkpoint.read.failed"},
            std::move(call)) {}

  bool loads() const override { return true; }
  void run_file() override {
    const telemetry::ContextScope scope(span().context());
    read_ = place_->read(*engine_, request().with_optimizer());
  }

 private:
  Result<Progress> run(EngineContext& context, v1::LoadStateResponse&) override {
    if (!read_) {
      note({{"tuft.optimizer", request().with_optimizer()}});
      TUFT_ASSIGN(place_, CheckpointPlace::find(request().directory(), context.bucket));
      engine_ = &context.engine;
      return Progress::kFile;
    }
    TUFT_ASSIGN(engine::DetachedPointer read, std::move(*read_));
    TUFT_TRY(context.engine.adapters().replace(adapter(), std::move(read)));
    context.metrics.load_from_disk.record(to_seconds(context.clock.monotonic() - started()));
    return Progress::kDone;
  }

  std::optional<CheckpointPlace> place_;
  engine::Engine* engine_ = nullptr;
  std::optional<Result<engine::DetachedPointer>> read_;
};

class AddSampler final : public MethodOperation<rpc::AddSampler> {
 public:
  explicit AddSampler(Call<rpc::AddSampler> call)
      : MethodOperation(
            {"hf_model.add_adapter", "lora.load.begin", "lora.loaded", "lora.load.failed", /*life_cycle=*/true},
            std::move(call)) {}

  bool loads() const override { return true; }
  void run_file() override {
    const telemetry::ContextScope scope(span().context());
    read_ = place_->read(*engine_, false);
  }

 private:
  Result<Progress> run(EngineContext& context, v1::AddSamplerResponse& response) override {
    if (!read_) {
      TUFT_ASSIGN(place_, CheckpointPlace::find(request().directory(), context.bucket));
      if (context.adapters.exists(adapter())) {
        return Error{ErrorCode::kAlreadyExists, "the sampler is loaded already", "sampler_exists"};
      }
      engine_ = &context.engine;
      return Progress::kFile;
    }
    TUFT_ASSIGN(engine::DetachedPointer read, std::move(*read_));
    const engine::LoraSpec spec = read->spec();
    const int64_t parameters = engine::parameters_of(context.engine.model(), spec);
    response.set_size_bytes(parameters * static_cast<int64_t>(sizeof(float)));
    TUFT_TRY(context.adapters.create(adapter(), std::move(read), AdapterKind::kSampler, tenant()));
    context.ranks[adapter()] = spec.rank;
    context.metrics.load_from_disk.record(to_seconds(context.clock.monotonic() - started()));
    note({{"tuft.lora_rank", spec.rank}, {"tuft.size_bytes", response.size_bytes()}});
    return Progress::kDone;
  }

  std::optional<CheckpointPlace> place_;
  engine::Engine* engine_ = nullptr;
  std::optional<Result<engine::DetachedPointer>> read_;
};

class PublishAdapter final : public MethodOperation<rpc::PublishAdapter> {
 public:
  explicit PublishAdapter(Call<rpc::PublishAdapter> call)
      : MethodOperation({"hf_model.publish_adapter", "lora.publish.begin", "lora.published", "lora.publish.failed"},
                        std::move(call)) {}

 private:
  Result<Progress> run(EngineContext& context, v1::PublishAdapterResponse& response) override {
    note({{"tuft.sampler_id", request().sampler_id()}});
    if (request().sampler_id().empty()) return invalid_argument("the request names no sampler");
    const engine::AdapterId sampler = sampler_adapter(request().sampler_id());
    TUFT_ASSIGN(const int64_t bytes, context.adapters.copy_to_sampler(adapter(), sampler, tenant()));
    context.ranks[sampler] = context.ranks[adapter()];
    response.set_size_bytes(bytes);
    note({{"tuft.size_bytes", bytes}});
    return Progress::kDone;
  }
};

class RemoveSampler final : public MethodOperation<rpc::RemoveSampler> {
 public:
  explicit RemoveSampler(Call<rpc::RemoveSampler> call)
      : MethodOperation({"hf_model.remove_adapter", "lora.unload.begin", "lora.unloaded", "lora.unload.failed"},
                        std::move(call)) {}

  bool needs_adapter() const override { return false; }

 private:
  Result<Progress> run(EngineContext& context, v1::RemoveSamplerResponse&) override {
    context.cancel_samples(adapter());
    TUFT_TRY(context.adapters.remove(adapter()));
    context.ranks.erase(adapter());
    return Progress::kDone;
  }
};

}  // namespace

std::unique_ptr<Operation> make_operation(Call<rpc::SaveState> call) {
  const OperationNames names = {"hf_model.save_state", "checkpoint.write.begin", "checkpoint.write.completed",
                                "checkpoint.write.failed"};
  return std::make_unique<Save<rpc::SaveState>>(names, std::move(call));
}

std::unique_ptr<Operation> make_operation(Call<rpc::SaveSampler> call) {
  const OperationNames names = {"hf_model.save_sampler", "checkpoint.write.begin", "checkpoint.write.completed",
                                "checkpoint.write.failed"};
  return std::make_unique<Save<rpc::SaveSampler>>(names, std::move(call));
}

std::unique_ptr<Operation> make_operation(Call<rpc::LoadState> call) {
  return std::make_unique<LoadState>(std::move(call));
}

std::unique_ptr<Operation> make_operation(Call<rpc::AddSampler> call) {
  return std::make_unique<AddSampler>(std::move(call));
}

std::unique_ptr<Operation> make_operation(Call<rpc::PublishAdapter> call) {
  return std::make_unique<PublishAdapter>(std::move(call));
}

std::unique_ptr<Operation> make_operation(Call<rpc::RemoveSampler> call) {
  return std::make_unique<RemoveSampler>(std::move(call));
}

}  // namespace tuft::worker
