// Operations on training adapters that need no files.
#include <cmath>
#include <new>

#include "engine/lora.h"
#include "worker/conversion.h"
#include "worker/operation_base.h"
#include "worker/pass_recorder.h"
#include "worker/step_batch.h"

namespace tuft::worker {
namespace {

using Progress = Operation::Progress;

Result<engine::LoraSpec> read_spec(const v1::LoraSpec& source, const AdapterLimits& limits) {
  if (source.rank() < 1 || source.rank() > limits.rank_max) {
    return invalid_argument("lora rank must be 1 to " + std::to_string(limits.rank_max) + " (max_lora_rank), got " +
                                std::to_string(source.rank()),
                            "lora_rank_out_of_range");
  }
  if (!std::isfinite(source.alpha()) || source.alpha() <= 0) {
    return invalid_argument("lora alpha must be finite and greater than 0");
  }
  if (!source.train_attn() && !source.train_mlp() && !source.train_unembed()) {
    return invalid_argument("at least one of train_attn, train_mlp and train_unembed must be true");
  }
  engine::LoraSpec spec;
  spec.rank = source.rank();
  spec.alpha = source.alpha();
  spec.train_attn = source.train_attn();
  spec.train_mlp = source.train_mlp();
  spec.train_unembed = source.train_unembed();
  spec.seed = source.seed();
  return spec;
}

bool at_least_0(double value) {
  return std::isfinite(value) && value >= 0;
}
bool below_1(double value) {
  return value >= 0 && value < 1;
}

// The control plane refuses parameters out of range, so one that arrives here is an error of the control plane.
Status check_params(const std::string& params, std::initializer_list<std::pair<const char*, bool>> checks) {
  for (const auto& [field, valid] : checks) {
    if (!valid) return internal_error(params + "." + field + " is out of range");
  }
  return {};
}

Result<engine::OptimParams> read_params(const v1::AdamParams& source) {
  TUFT_TRY(check_params("adam_params", {{"learning_rate", at_least_0(source.learning_rate())},
                                        {"beta1", below_1(source.beta1())},
                                        {"beta2", below_1(source.beta2())},
                                        {"eps", at_least_0(source.eps())},
                                        {"weight_decay", at_least_0(source.weight_decay())},
                                        {"grad_clip_norm", at_least_0(source.grad_clip_norm())}}));
  return engine::OptimParams(engine::AdamParams{source.learning_rate(), source.beta1(), source.beta2(), source.eps(),
                                                source.weight_decay(), source.grad_clip_norm()});
}

Result<engine::OptimParams> read_params(const v1::DimuonParams& source) {
  TUFT_TRY(check_params("optimizer_params", {{"learning_rate", at_least_0(source.learning_rate())},
                                             {"beta1", below_1(source.beta1())},
                                             {"grad_clip_norm", at_least_0(source.grad_clip_norm())}}));
  return engine::OptimParams(engine::DimuonParams{source.learning_rate(), source.beta1(), source.grad_clip_norm()});
}

Result<engine::OptimParams> read_params(const v1::OptimStepRequest& request) {
  return request.has_dimuon() ? read_params(request.dimuon()) : read_params(request.params());
}

std::string_view optimizer_of(const v1::OptimStepRequest& request) {
  return engine::optimizer_name(request.has_dimuon() ? engine::Optimizer::kDimuon : engine::Optimizer::kAdamW);
}

double learning_rate_of(const v1::OptimStepRequest& request) {
  return request.has_dimuon() ? request.dimuon().learning_rate() : request.params().learning_rate();
}

class CreateAdapter final : public MethodOperation<rpc::CreateAdapter> {
 public:
  explicit CreateAdapter(Call<rpc::CreateAdapter> call)
      : MethodOperation(
            {"hf_model.create_adapter", "lora.load.begin", "lora.loaded", "lora.load.failed", /*life_cycle=*/true},
            std::move(call)) {}

  bool makes() const override { return true; }
  void run_file() override {
    engine::AdapterState state = engine::make_adapter(engine_->model(), spec_);
    state.optimizer = optimizer_;
    made_ = engine_->adapters().make(std::move(state));
  }

 private:
  Result<Progress> run(EngineContext& context, v1::CreateAdapterResponse& response) override {
    if (!made_) {
      note({{"tuft.lora_rank", request().spec().rank()}, {"tuft.lora_alpha", request().spec().alpha()}});
      TUFT_ASSIGN(spec_, read_spec(request().spec(), context.limits));
      const auto optimizer = engine::find_optimizer(request().optimizer());
      if (!optimizer) return internal_error("the request names no optimizer that this worker knows");
      optimizer_ = *optimizer;
      engine_ = &context.engine;
      return Progress::kFile;
    }
    TUFT_ASSIGN(engine::DetachedPointer made, std::move(*made_));
    TUFT_TRY(context.adapters.create(adapter(), std::move(made), AdapterKind::kTraining, tenant()));
    response.set_parameters(engine::parameters_of(context.engine.model(), spec_));
    context.ranks[adapter()] = spec_.rank;
    context.metrics.load_new.record(to_seconds(context.clock.monotonic() - started()));
    for (const engine::TargetModule module : spec_.target_modules())
      response.add_target_modules(std::string(engine::module_name(module)));
    return Progress::kDone;
  }

  engine::LoraSpec spec_;
  engine::Optimizer optimizer_ = engine::Optimizer::kAdamW;
  engine::Engine* engine_ = nullptr;
  std::optional<Result<engine::DetachedPointer>> made_;
};

class RemoveAdapter final : public MethodOperation<rpc::RemoveAdapter> {
 public:
  explicit RemoveAdapter(Call<rpc::RemoveAdapter> call)
      : MethodOperation({"hf_model.remove_adapter", "lora.unload.begin", "lora.unloaded", "lora.unload.failed"},
                        std::move(call)) {}

  bool ends_queue() const override { return true; }
  bool needs_adapter() const override { return false; }

 private:
  Result<Progress> run(EngineContext& context, v1::RemoveAdapterResponse&) override {
    TUFT_TRY(context.adapters.remove(adapter()));
    context.ranks.erase(adapter());
    return Progress::kDone;
  }
};

class ForwardBackward final : public MethodOperation<rpc::ForwardBackward>, public PassMember {
 public:
  ForwardBackward(Call<rpc::ForwardBackward> call, engine::TrainRequest request)
      : MethodOperation(names(request.backward), std::move(call)),
        train_request_(std::move(request)),
        backward_(train_request_.backward) {}

  bool trains() const override { return true; }

  telemetry::SpanContext span_context() const override { return span().context(); }
  std::vector<telemetry::Attribute> pass_keys() const override {
    std::vector<telemetry::Attribute> attributes = keys();
    attributes.insert(attributes.end(), {{"tuft.backward", backward_}, {"tuft.pass", passes_}});
    return attributes;
  }
  void passed(const PassPart& part) override {
    if (passes_++ == 0) first_pass_ = part.begin;
    computing_ += part.computing;
    pack_ += part.pack;
    loss_ += part.loss;
    forward_ += part.forward;
    backward_time_ += part.backward;
  }

 private:
  static OperationNames names(bool backward) {
    if (backward) {
      return {"hf_model.forward_backward", "forward_backward.begin", "forward_backward.completed",
              "forward_backward.failed"};
    }
    return {"hf_model.forward", "forward.begin", "forward.completed", "forward.failed"};
  }

  // A request waits until its first pass begins.
  double queue_seconds() const override { return to_seconds((first_pass_ != 0 ? first_pass_ : started()) - arrived()); }

  Result<Progress> run(EngineContext& context, v1::ForwardBackwardResponse& response) override {
    if (!result_) {
      TUFT_TRY(start(context));
      return Progress::kTraining;
    }
    context.metrics.train_queue.record(queue_seconds());
    span().set_attribute("tuft.queue_seconds", queue_seconds());
    if (!result_->ok()) return std::move(*result_).error();
    try {
      finish(context, **result_, response);
    } catch (const std::bad_alloc&) {
      return unanswered(context);
    }
    return Progress::kDone;
  }

  // The results do not fit into memory. What is reported failed must not stay in the gradient.
  Error unanswered(EngineContext& context) const {
    if (!backward_) return out_of_memory();
    (void)context.engine.adapters().clear_gradients(adapter());
    return internal_error(
        "there was not enough memory for the results; the gradient of this model is lost - send every "
        "forward_backward since the last optim_step again, with fewer or shorter datums in a request",
        "out_of_memory");
  }

  int64_t custom_elements() const {
    int64_t sum = 0;
    for (const engine::Datum& datum : train_request_.data) sum += datum.custom_elements;
    return sum;
  }

  Status start(EngineContext& context) {
    note({{"tuft.backward", backward_}, {"tuft.data_count", train_request_.data.size()}});
    if (train_request_.custom_loss != nullptr) note({{"tuft.custom_loss_elements", custom_elements()}});
    if (const auto rank = context.ranks.find(adapter()); rank != context.ranks.end())
      train_request_.rank = rank->second;
    TUFT_ASSIGN(number_,
                context.trainer.submit(std::move(train_request_), [this, &context](Result<engine::TrainOutput> result) {
                  context.passes.remove(number_);
                  result_ = std::move(result);
                  context.trained(*this);
                }));
    context.passes.add(number_, *this);
    return {};
  }

  void finish(EngineContext& context, const engine::TrainOutput& output, v1::ForwardBackwardResponse& response) {
    context.metrics.passes_of_request.record(output.passes);
    note({{"tuft.num_micro_batches", output.passes}, {"tuft.tokens", output.tokens}});
    if (const auto loss = output.metrics.find("loss:sum"); loss != output.metrics.end()) {
      // The mean, as the controller's span has it.
      if (std::isfinite(loss->second) && output.weight_sum > 0) note({{"tuft.loss", loss->second / output.weight_sum}});
      response.set_loss_sum(loss->second);
    }
    response.set_output(to_output(output).SerializeAsString());
    response.set_tokens(output.tokens);
    response.set_compute_seconds(to_seconds(computing_));
    response.set_weight_sum(output.weight_sum);
    response.set_pack_seconds(to_seconds(pack_));
    response.set_forward_seconds(to_seconds(forward_));
    response.set_loss_seconds(to_seconds(loss_));
    response.set_backward_seconds(to_seconds(backward_time_));
    response.set_passes(output.passes);
  }

  engine::TrainRequest train_request_;
  const bool backward_;
  engine::TrainRequestNumber number_ = 0;
  std::optional<Result<engine::TrainOutput>> result_;
  int passes_ = 0;
  Nanos first_pass_ = 0;
  Nanos computing_ = 0;
  Nanos pack_ = 0;
  Nanos forward_ = 0;
  Nanos loss_ = 0;
  Nanos backward_time_ = 0;
};

class OptimStep final : public MethodOperation<rpc::OptimStep>, public StepMember {
 public:
  explicit OptimStep(Call<rpc::OptimStep> call)
      : MethodOperation({"hf_model.optim_step", "optim_step.begin", "optim_step.completed", "optim_step.failed"},
                        std::move(call)) {}

  bool steps() const override { return true; }
  const std::string& step_queue() const override { return queue(); }
  telemetry::Span& step_span() override { return span(); }
  void stepped(Result<engine::OptimReport> report, Nanos computing) override {
    report_ = std::move(report);
    computing_ = computing;
  }

 private:
  Result<Progress> run(EngineContext& context, v1::OptimStepResponse& response) override {
    if (report_) return finish(response);
    TUFT_ASSIGN(const engine::OptimParams params, read_params(request()));
    context.steps.add({adapter(), params}, *this);
    return Progress::kStepping;
  }

  // Needs no memory, so that a step that was made is not reported as failed.
  Result<Progress> finish(v1::OptimStepResponse& response) {
    TUFT_ASSIGN(const engine::OptimReport report, std::move(*report_));
    response.set_grad_norm(report.grad_norm);
    response.set_step(report.step);
    response.set_learning_rate(learning_rate_of(request()));
    response.set_compute_seconds(to_seconds(computing_));
    response.set_clipped(report.clipped);
    response.set_stepped(report.applied);
    response.set_nonfinite(!std::isfinite(report.grad_norm));
    response.set_nonfinite_update(!report.finite);
    describe(report);
    return Progress::kDone;
  }

  // A step for whose description there is no memory has none.
  void describe(const engine::OptimReport& report) noexcept try {
    note({{"tuft.learning_rate", learning_rate_of(request())},
          {"tuft.optimizer_name", optimizer_of(request())},
          {"tuft.grad_norm", report.grad_norm},
          {"tuft.grad_clipped", report.clipped},
          {"tuft.step", report.step}});
    if (!report.applied) {
      const bool none = std::isfinite(report.grad_norm);
      span().add_event("optim_step.skipped", {{"tuft.reason", none ? "no gradient" : "gradient not finite"}});
    }
    if (!report.finite) span().add_event("optim_step.broke", {{"tuft.reason", "weights not finite"}});
  } catch (const std::bad_alloc&) {
  }

  std::optional<Result<engine::OptimReport>> report_;
  Nanos computing_ = 0;
};

}  // namespace

engine::AdapterId training_adapter(const std::string& adapter_id) {
  return engine::AdapterId("model/" + adapter_id);
}
engine::AdapterId sampler_adapter(const std::string& sampler_id) {
  return engine::AdapterId("sampler/" + sampler_id);
}

std::unique_ptr<Operation> make_operation(Call<rpc::CreateAdapter> call) {
  return std::make_unique<CreateAdapter>(std::move(call));
}

std::unique_ptr<Operation> make_operation(Call<rpc::RemoveAdapter> call) {
  return std::make_unique<RemoveAdapter>(std::move(call));
}

std::unique_ptr<Operation> make_forward_backward(Call<rpc::ForwardBackward> call, engine::TrainRequest request) {
  return std::make_unique<ForwardBackward>(std::move(call), std::move(request));
}

std::unique_ptr<Operation> make_operation(Call<rpc::OptimStep> call) {
  return std::make_unique<OptimStep>(std::move(call));
}

}  // namespace tuft::worker
