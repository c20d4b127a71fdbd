// The metrics of one base model, recorded from the worker's answers. Their series are bound when the server starts, so
// that hot paths need not look them up and dashboards show 0 instead of a gap.
#pragma once

#include <cstdint>
#include <string>

#include "control/types/types.h"
#include "telemetry/instrument.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

// Thread-safe.
class ModelInstruments {
 public:
  explicit ModelInstruments(const std::string& base_model);

  // Records a forward or forward_backward that ended `seconds` after it was accepted.
  void record_pass(OperationType operation, const std::string& loss_fn,
                   const worker::v1::ForwardBackwardResponse& response, double seconds) const;
  void record_optim_step(const worker::v1::OptimStepResponse& response) const;

  // Records the parameters of an accepted sample.
  void record_sample_request(const worker::v1::SampleRequest& request) const;
  // `waited` and `seconds` are the seconds from acceptance until it was sent to the worker, and until it ended.
  void record_sample(const worker::v1::SampleResponse& response, double waited, double seconds) const;
  void record_sample_failure(const Error& error, int num_samples, double seconds) const;

  void add_model(int64_t by) const { models_active_.add(by); }
  void add_sampler(int64_t by) const { samplers_active_.add(by); }

 private:
  void record_gen_ai(const worker::v1::SampleResponse& response, double first_token, double seconds) const;

  std::string base_model_;
  telemetry::BoundCounter models_active_, forward_tokens_, backward_tokens_, optim_steps_, clipped_;
  telemetry::BoundCounter nonfinite_loss_, nonfinite_grad_, nonfinite_update_;
  telemetry::BoundHistogram training_rate_, phase_queue_, phase_pack_, phase_forward_, phase_loss_, phase_backward_,
      phase_optim_, grad_norm_;

  telemetry::BoundCounter samplers_active_, sampled_, prefill_tokens_, decode_tokens_, prompt_logprobs_, topk_logprobs_;
  telemetry::BoundCounter target_logprobs_, topk_sample_logprobs_, prompt_alternatives_;
  telemetry::BoundCounter ended_stop_, ended_length_;
  telemetry::BoundHistogram sampling_seconds_, sampling_rate_, output_tokens_, prompt_tokens_, max_tokens_,
      num_samples_;
  telemetry::BoundHistogram prefill_seconds_, decode_seconds_, inference_seconds_;
  telemetry::BoundHistogram first_token_, per_token_, request_seconds_, input_usage_, output_usage_;
};

// Returns how an operation ended: "ok", "cancelled", "timeout" or "failed". This is a label of tuft.requests.terminal
// and tuft.sampling.requests. `error` is null if the operation succeeded.
std::string_view terminal_status(const Error* error);

// Binds the series of tuft.requests.terminal for a base model.
void bind_terminal_series(const std::string& base_model);

}  // namespace tuft::control
