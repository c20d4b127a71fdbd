// Operations on training adapters that need no file.
#include <cmath>

#include "worker/conversion.h"
#include "worker/operation_base.h"
#include "worker/pass_recorder.h"
#include "worker/step_batch.h"

namespace tuft::worker {
namespace {

using Progress = Operation::Progress;

int64_t count_parameters(const engine::AdapterState& state) {
  int64_t count = 0;
  for (const auto& tensor : state.tensors) count += static_cast<int64_t>(tensor.a.size() + tensor.b.size());
  return count;
}

Result<engine::LoraSpec> read_spec(const v1::LoraSpec& source, const AdapterLimits& limits) {
  if (source.rank() < 1 || source.rank() > limits.rank_max) {
    return invalid_argument("lora rank must be 1 to " + std::to_string(limits.rank_max) + " (max_lora_rank), got " +
                                std::to_string(source.rank()),
                            "lora_rank_out_of_range");
  }
  if (!std::isfinite(source.alpha()) || source.alpha() <= 0) {
    return invalid_argument("lora alpha must be over 0 and finite");
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

class CreateAdapter final : public ReplyingOperation<v1::CreateAdapterResponse> {
 public:
  CreateAdapter(v1::CreateAdapterRequest request, Caller caller, Reply<v1::CreateAdapterResponse> reply)
      : ReplyingOperation(
            {"hf_model.create_adapter", "lora.load.begin", "lora.loaded", "lora.load.failed", /*life_cycle=*/true},
            training_subject(request.adapter_id()), std::move(caller), std::move(reply)),
        request_(std::move(request)) {}

 private:
  Result<Progress> run(Bench& bench, v1::CreateAdapterResponse& response) override {
    note({{"tuft.lora_rank", request_.spec().rank()}, {"tuft.lora_alpha", request_.spec().alpha()}});
    TUFT_ASSIGN(const engine::LoraSpec spec, read_spec(request_.spec(), bench.limits));
    engine::AdapterState state = engine::make_adapter(bench.engine.model(), spec);
    response.set_parameters(count_parameters(state));
    TUFT_TRY(bench.adapters.create(adapter(), std::move(state), AdapterKind::kTraining));
    bench.ranks[adapter()] = spec.rank;
    bench.metrics.load_new.record(to_seconds(bench.clock.monotonic() - started()));
    for (const engine::Site site : spec.sites()) response.add_target_modules(std::string(engine::site_name(site)));
    return Progress::kDone;
  }

  const v1::CreateAdapterRequest request_;
};

class RemoveAdapter final : public ReplyingOperation<v1::RemoveAdapterResponse> {
 public:
  RemoveAdapter(const v1::RemoveAdapterRequest& request, Caller caller, Reply<v1::RemoveAdapterResponse> reply)
      : ReplyingOperation({"hf_model.remove_adapter", "lora.unload.begin", "lora.unloaded", "lora.unload.failed"},
                          training_subject(request.adapter_id()), std::move(caller), std::move(reply)) {}

  bool ends_lane() const override { return true; }
  bool needs_adapter() const override { return false; }

 private:
  Result<Progress> run(Bench& bench, v1::RemoveAdapterResponse&) override {
    TUFT_TRY(bench.adapters.remove(adapter()));
    bench.ranks.erase(adapter());
    return Progress::kDone;
  }
};

class ForwardBackward final : public ReplyingOperation<v1::ForwardBackwardResponse>, public PassMember {
 public:
  ForwardBackward(const std::string& adapter_id, engine::TrainRequest request, Caller caller,
                  Reply<v1::ForwardBackwardResponse> reply)
      : ReplyingOperation(names(request.backward), training_subject(adapter_id), std::move(caller), std::move(reply)),
        request_(std::move(request)),
        backward_(request_.backward) {}

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

  // Its turn in a pass is what it waits for.
  double queue_seconds() const override { return to_seconds((first_pass_ != 0 ? first_pass_ : started()) - arrived()); }

  Result<Progress> run(Bench& bench, v1::ForwardBackwardResponse& response) override {
    if (!result_) {
      TUFT_TRY(start(bench));
      return Progress::kTraining;
    }
    bench.metrics.train_queue.record(queue_seconds());
    span().set_attribute("tuft.queue_seconds", queue_seconds());
    if (!result_->ok()) return std::move(*result_).error();
    finish(bench, **result_, response);
    return Progress::kDone;
  }

  Status start(Bench& bench) {
    note({{"tuft.backward", backward_}, {"tuft.data_count", request_.data.size()}});
    if (const auto rank = bench.ranks.find(adapter()); rank != bench.ranks.end()) request_.rank = rank->second;
    TUFT_ASSIGN(number_, bench.trainer.submit(std::move(request_), [this, &bench](Result<engine::TrainOutput> result) {
      bench.passes.remove(number_);
      result_ = std::move(result);
      bench.trained(*this);
    }));
    bench.passes.add(number_, *this);
    return {};
  }

  void finish(Bench& bench, const engine::TrainOutput& output, v1::ForwardBackwardResponse& response) {
    bench.metrics.passes_of_request.record(output.passes);
    note({{"tuft.num_micro_batches", output.passes}, {"tuft.tokens", output.tokens}});
    if (const auto loss = output.metrics.find("loss:sum"); loss != output.metrics.end()) {
      note({{"tuft.loss", loss->second}});
    }
    *response.mutable_output() = to_output(output);
    response.set_tokens(output.tokens);
    response.set_compute_seconds(to_seconds(computing_));
    response.set_weight_sum(output.weight_sum);
    response.set_pack_seconds(to_seconds(pack_));
    response.set_forward_seconds(to_seconds(forward_));
    response.set_loss_seconds(to_seconds(loss_));
    response.set_backward_seconds(to_seconds(backward_time_));
    response.set_passes(output.passes);
  }

  engine::TrainRequest request_;
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

class OptimStep final : public ReplyingOperation<v1::OptimStepResponse>, public StepMember {
 public:
  OptimStep(v1::OptimStepRequest request, Caller caller, Reply<v1::OptimStepResponse> reply)
      : ReplyingOperation({"hf_model.optim_step", "optim_step.begin", "optim_step.completed", "optim_step.failed"},
                          training_subject(request.adapter_id()), std::move(caller), std::move(reply)),
        request_(std::move(request)) {}

  const std::string& step_lane() const override { return lane(); }
  telemetry::Span& step_span() override { return span(); }
  void stepped(Result<engine::OptimReport> report, Nanos computing) override {
    report_ = std::move(report);
    computing_ = computing;
  }

 private:
  Result<Progress> run(Bench& bench, v1::OptimStepResponse& response) override {
    if (report_) return finish(response);
    TUFT_ASSIGN(const engine::AdamParams params, read_params());
    bench.steps.add({adapter(), params}, *this);
    return Progress::kStepping;
  }

  Result<Progress> finish(v1::OptimStepResponse& response) {
    TUFT_ASSIGN(const engine::OptimReport report, std::move(*report_));
    response.set_compute_seconds(to_seconds(computing_));
    response.set_clipped(report.clipped);
    response.set_nonfinite(!report.applied);
    response.set_nonfinite_update(!report.finite);
    note({{"tuft.learning_rate", request_.params().learning_rate()},
          {"tuft.grad_norm", report.grad_norm},
          {"tuft.grad_clipped", report.clipped},
          {"tuft.step", report.step}});
    if (!report.applied) span().add_event("optim_step.skipped", {{"tuft.reason", "gradient not finite"}});
    auto& metrics = *response.mutable_metrics();
    metrics["grad_norm"] = report.grad_norm;
    metrics["learning_rate"] = request_.params().learning_rate();
    metrics["step"] = static_cast<double>(report.step);
    if (!report.applied) metrics["skipped"] = 1.0;
    if (!report.finite) span().add_event("optim_step.broke", {{"tuft.reason", "weights not finite"}});
    return Progress::kDone;
  }

  Result<engine::AdamParams> read_params() const {
    const v1::AdamParams& source = request_.params();
    const auto need = [](const char* field, double value, bool fits, const char* allowed) -> Status {
      if (std::isfinite(value) && fits) return {};
      return invalid_argument(std::string("adam_params.") + field + " must be " + allowed);
    };
    TUFT_TRY(need("learning_rate", source.learning_rate(), source.learning_rate() >= 0, "0 or more and finite"));
    TUFT_TRY(need("beta1", source.beta1(), source.beta1() >= 0 && source.beta1() < 1, "at least 0 and below 1"));
    TUFT_TRY(need("beta2", source.beta2(), source.beta2() >= 0 && source.beta2() < 1, "at least 0 and below 1"));
    TUFT_TRY(need("eps", source.eps(), source.eps() >= 0, "0 or more and finite"));
    TUFT_TRY(need("weight_decay", source.weight_decay(), source.weight_decay() >= 0, "0 or more and finite"));
    TUFT_TRY(need("grad_clip_norm", source.grad_clip_norm(), source.grad_clip_norm() >= 0, "0 (off) or more"));
    return engine::AdamParams{source.learning_rate(), source.beta1(),        source.beta2(),
                              source.eps(),           source.weight_decay(), source.grad_clip_norm()};
  }

  const v1::OptimStepRequest request_;
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

std::unique_ptr<Operation> make_create_adapter(v1::CreateAdapterRequest request, Caller caller,
                                               Reply<v1::CreateAdapterResponse> reply) {
  return std::make_unique<CreateAdapter>(std::move(request), std::move(caller), std::move(reply));
}

std::unique_ptr<Operation> make_remove_adapter(const v1::RemoveAdapterRequest& request, Caller caller,
                                               Reply<v1::RemoveAdapterResponse> reply) {
  return std::make_unique<RemoveAdapter>(request, std::move(caller), std::move(reply));
}

std::unique_ptr<Operation> make_forward_backward(const std::string& adapter_id, engine::TrainRequest request,
                                                 Caller caller, Reply<v1::ForwardBackwardResponse> reply) {
  return std::make_unique<ForwardBackward>(adapter_id, std::move(request), std::move(caller), std::move(reply));
}

std::unique_ptr<Operation> make_optim_step(v1::OptimStepRequest request, Caller caller,
                                           Reply<v1::OptimStepResponse> reply) {
  return std::make_unique<OptimStep>(std::move(request), std::move(caller), std::move(reply));
}

}  // namespace tuft::worker
