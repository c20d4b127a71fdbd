#include "control/workers/model_instruments.h"

#include <algorithm>
#include <cmath>

#include "control/types/errors.h"
#include "metrics/sampling.h"
#include "metrics/tenants.h"
#include "metrics/training.h"

namespace tuft::control {
namespace {

using telemetry::Label;

constexpr Label kOperation = {"gen_ai.operation.name", "text_completion"};
constexpr Label kProvider = {"gen_ai.provider.name", "tuft"};

}  // namespace

ModelInstruments::ModelInstruments(const std::string& base_model) : base_model_(base_model) {
  const Label model = {"base_model", base_model_};
  const Label gen_ai_model = {"gen_ai.request.model", base_model_};

  models_active_ = metrics::training().models_active.with({model});
  forward_tokens_ = metrics::training().tokens.with({model, {"kind", "forward"}});
  backward_tokens_ = metrics::training().tokens.with({model, {"kind", "forward_backward"}});
  optim_steps_ = metrics::training().optim_steps.with({model});
  clipped_ = metrics::training().grad_clipped.with({model});
  nonfinite_loss_ = metrics::training().nonfinite.with({model, {"what", "loss"}});
  nonfinite_update_ = metrics::training().nonfinite.with({model, {"what", "update"}});
  nonfinite_grad_ = metrics::training().nonfinite.with({model, {"what", "grad"}});
  training_rate_ = metrics::training().tokens_per_second.with({model});
  phase_queue_ = metrics::training().step_duration.with({model, {"phase", "queue"}});
  phase_forward_ = metrics::training().step_duration.with({model, {"phase", "forward"}});
  phase_backward_ = metrics::training().step_duration.with({model, {"phase", "backward"}});
  phase_pack_ = metrics::training().step_duration.with({model, {"phase", "pack"}});
  phase_loss_ = metrics::training().step_duration.with({model, {"phase", "loss"}});
  phase_optim_ = metrics::training().step_duration.with({model, {"phase", "optim"}});
  grad_norm_ = metrics::training().grad_norm.with({model});

  samplers_active_ = metrics::sampling().sessions_active.with({model});
  sampled_ = metrics::sampling().requests.with({model, {"status", "ok"}});
  metrics::sampling().requests.with({model, {"status", "failed"}});
  prefill_tokens_ = metrics::sampling().tokens.with({model, {"kind", "prefill"}});
  decode_tokens_ = metrics::sampling().tokens.with({model, {"kind", "decode"}});
  prompt_logprobs_ = metrics::sampling().logprobs_requests.with({model, {"kind", "prompt"}});
  topk_logprobs_ = metrics::sampling().logprobs_requests.with({model, {"kind", "topk"}});
  target_logprobs_ = metrics::sampling().logprobs_requests.with({model, {"kind", "target"}});
  topk_sample_logprobs_ = metrics::sampling().logprobs_requests.with({model, {"kind", "topk_sample"}});
  prompt_alternatives_ = metrics::sampling().logprobs_requests.with({model, {"kind", "alternatives"}});
  ended_stop_ = metrics::sampling().finished.with({model, {"finish_reason", "stop"}});
  ended_length_ = metrics::sampling().finished.with({model, {"finish_reason", "length"}});
  metrics::sampling().finished.with({model, {"finish_reason", "error"}});
  sampling_seconds_ = metrics::sampling().duration.with({model});
  sampling_rate_ = metrics::sampling().tokens_per_second.with({model});
  output_tokens_ = metrics::sampling().output_tokens.with({model});
  prompt_tokens_ = metrics::sampling().prompt_tokens.with({model});
  max_tokens_ = metrics::sampling().max_tokens.with({model});
  num_samples_ = metrics::sampling().num_samples.with({model});
  prefill_seconds_ = metrics::sampling().prefill_duration.with({model});
  decode_seconds_ = metrics::sampling().decode_duration.with({model});
  inference_seconds_ = metrics::sampling().inference_duration.with({model});
  first_token_ = metrics::sampling().time_to_first_token.with({kOperation, kProvider, gen_ai_model});
  per_token_ = metrics::sampling().time_per_output_token.with({kOperation, kProvider, gen_ai_model});
  request_seconds_ = metrics::sampling().gen_ai_request_duration.with({kOperation, kProvider, gen_ai_model});
  input_usage_ = metrics::sampling().gen_ai_token_usage.with(
      {kOperation, kProvider, gen_ai_model, {"gen_ai.token.type", "input"}});
  output_usage_ = metrics::sampling().gen_ai_token_usage.with(
      {kOperation, kProvider, gen_ai_model, {"gen_ai.token.type", "output"}});
}

void ModelInstruments::record_pass(OperationType operation, const std::string& loss_fn,
                                   const worker::v1::ForwardBackwardResponse& response, double seconds) const {
  const bool backward = operation == OperationType::kForwardBackward;
  const auto tokens = static_cast<double>(response.tokens());
  (backward ? backward_tokens_ : forward_tokens_).add(response.tokens());
  if (seconds > 0 && tokens > 0) training_rate_.record(tokens / seconds);
  phase_queue_.record(response.queue_seconds());
  phase_pack_.record(response.pack_seconds());
  phase_forward_.record(response.forward_seconds());
  phase_loss_.record(response.loss_seconds());
  if (backward) phase_backward_.record(response.backward_seconds());
  if (!response.has_loss_sum()) return;
  if (!std::isfinite(response.loss_sum())) {
    nonfinite_loss_.add(1);
  } else if (backward && response.weight_sum() > 0) {
    metrics::training().loss.record(response.loss_sum() / response.weight_sum(),
                                    {{"base_model", base_model_}, {"loss_fn", loss_fn}});
  }
}

void ModelInstruments::record_optim_step(const worker::v1::OptimStepResponse& response) const {
  phase_optim_.record(response.compute_seconds());
  if (response.nonfinite()) nonfinite_grad_.add(1);
  if (!response.stepped()) return;
  optim_steps_.add(1);
  if (response.nonfinite_update()) nonfinite_update_.add(1);
  if (response.clipped()) clipped_.add(1);
  grad_norm_.record(response.grad_norm());
}

void ModelInstruments::record_sample_request(const worker::v1::SampleRequest& request) const {
  max_tokens_.record(request.params().max_tokens());
  num_samples_.record(request.num_samples());
  if (request.prompt_logprobs()) prompt_logprobs_.add(1);
  if (request.topk_prompt_logprobs() > 0) topk_logprobs_.add(1);
  if (request.has_prompt_targets()) target_logprobs_.add(1);
  if (request.topk_logprobs() > 0) topk_sample_logprobs_.add(1);
  if (request.prompt_alt_tokens() > 0) prompt_alternatives_.add(1);
}

void ModelInstruments::record_sample(const worker::v1::SampleResponse& response, double waited, double seconds) const {
  sampled_.add(1);
  sampling_seconds_.record(seconds);
  prefill_tokens_.add(response.prompt_tokens());
  decode_tokens_.add(response.output_tokens());
  prompt_tokens_.record(static_cast<double>(response.prompt_tokens()));
  if (seconds > 0 && response.output_tokens() > 0) {
    sampling_rate_.record(static_cast<double>(response.output_tokens()) / seconds);
  }
  for (const int64_t tokens : response.sequence_tokens()) {
    if (tokens > 0) output_tokens_.record(static_cast<double>(tokens));
  }
  ended_stop_.add(response.stopped_sequences());
  ended_length_.add(response.sequence_tokens_size() - response.stopped_sequences());
  prefill_seconds_.record(response.prefill_seconds());
  decode_seconds_.record(response.decode_seconds());
  inference_seconds_.record(response.prefill_seconds() + response.decode_seconds());
  record_gen_ai(response, waited + response.queue_seconds() + response.prefill_seconds(), seconds);
}

void ModelInstruments::record_gen_ai(const worker::v1::SampleResponse& response, double first_token,
                                     double seconds) const {
  request_seconds_.record(seconds);
  input_usage_.record(static_cast<double>(response.prompt_tokens()));
  output_usage_.record(static_cast<double>(response.output_tokens()));
  if (response.output_tokens() <= 0) return;
  first_token_.record(first_token);
  int64_t longest = 0;
  for (const int64_t tokens : response.sequence_tokens()) longest = std::max(longest, tokens);
  if (longest > 1) per_token_.record(response.decode_seconds() / static_cast<double>(longest - 1));
}

void ModelInstruments::record_sample_failure(const Error& error, int num_samples, double seconds) const {
  const std::string_view status = terminal_status(&error);
  metrics::sampling().requests.add(1, {{"base_model", base_model_}, {"status", status}});
  metrics::sampling().finished.add(
      num_samples, {{"base_model", base_model_}, {"finish_reason", status == "cancelled" ? status : "error"}});
  metrics::sampling().gen_ai_request_duration.record(
      seconds,
      {kOperation, kProvider, {"gen_ai.request.model", base_model_}, {"error.type", error_code_name(error.code)}});
}

std::string_view terminal_status(const Error* error) {
  if (error == nullptr) return "ok";
  if (error->code == ErrorCode::kCancelled || error->reason == kShuttingDown) return "cancelled";
  if (error->code == ErrorCode::kDeadlineExceeded || error->reason == "seq_id_gap" ||
      error->reason == "worker_starting") {
    return "timeout";
  }
  return "failed";
}

void bind_terminal_series(const std::string& base_model) {
  const telemetry::Counter& terminal = metrics::tenants().requests_terminal;
  for (size_t i = 0; i < kOperationTypes; ++i) {
    const std::string_view name = operation_name(static_cast<OperationType>(i));
    for (const std::string_view status : {"ok", "failed"}) {
      terminal.with({{"operation_type", name}, {"base_model", base_model}, {"status", status}});
    }
  }
}

}  // namespace tuft::control
