// What telemetry hears of samples.
#include <algorithm>

#include "control/operation_keys.h"
#include "control/sampling_controller.h"
#include "telemetry/metrics.h"

namespace tuft::control {

const telemetry::Tracer& sampling_backend_tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.sampling_backend");
  return instance;
}

// The operation goes to the worker: opens the span around the call.
void SamplingController::begin_call(const Adapter& adapter, Operation& operation) {
  const OperationKeys& keys = *operation.keys;
  const tinker_public::SamplingParams& params = operation.request.params();
  telemetry::Span& span = operation.backend_span;
  span = sampling_backend_tracer().start_span("sampling_backend.sample",
                                              {.attributes = KeyAttributes(keys), .parent = operation.span.context()});
  span.set_attributes({{"tuft.num_samples", operation.request.num_samples()},
                       {"tuft.has_lora", adapter.checkpoint != nullptr},
                       {"gen_ai.operation.name", "text_completion"},
                       {"gen_ai.provider.name", "tuft"},
                       {"gen_ai.request.model", keys.base_model},
                       {"gen_ai.request.max_tokens", params.max_tokens()}});
  if (adapter.checkpoint != nullptr) span.set_attribute("tuft.lora_id", operation.request.sampler_id());
  if (params.has_temperature()) span.set_attribute("gen_ai.request.temperature", params.temperature());
  if (params.has_top_p()) span.set_attribute("gen_ai.request.top_p", params.top_p());
  if (params.has_top_k()) span.set_attribute("gen_ai.request.top_k", params.top_k());
  operation.sent = parts_.clock.monotonic();
  if (operation.future != nullptr) parts_.futures.mark_sent(*operation.future);
}

void SamplingController::describe_answer(Operation& operation, const worker::v1::SampleResponse& response) {
  const auto stopped =
      std::count_if(response.response().sequences().begin(), response.response().sequences().end(),
                    [](const auto& sequence) { return sequence.stop_reason() == tinker_public::STOP_REASON_STOP; });
  operation.backend_span.set_attributes({{"gen_ai.usage.input_tokens", response.prompt_tokens()},
                                         {"gen_ai.usage.output_tokens", response.output_tokens()},
                                         {"tuft.output_tokens", response.output_tokens()},
                                         {"tuft.finished.stop", stopped},
                                         {"tuft.finished.length", response.response().sequences_size() - stopped},
                                         {"tuft.queue_seconds", response.queue_seconds()},
                                         {"tuft.prefill_seconds", response.prefill_seconds()},
                                         {"tuft.decode_seconds", response.decode_seconds()}});
}

void SamplingController::record_sample(const Operation& operation, const worker::v1::SampleResponse& response) const {
  const double waited = to_seconds(operation.sent - operation.placed);
  const double seconds = to_seconds(parts_.clock.monotonic() - operation.placed);
  operation.backend->instruments().record_sample(response, waited, seconds);
  const OperationKeys& keys = *operation.keys;
  const UserId& user = operation.user;
  const int64_t cached = response.response().prompt_cache_hit_tokens();
  parts_.usage.add(user, keys, UsageKind::kSamplingPrefill, response.prompt_tokens() - cached);
  parts_.usage.add(user, keys, UsageKind::kSamplingPrefillCached, cached);
  parts_.usage.add(user, keys, UsageKind::kSamplingOutput, response.output_tokens());
  if (parts_.config.telemetry.tenant_label) {
    const telemetry::Label tenant = {"tenant", operation.user.str()};
    telemetry::get_metrics().tenant_tokens.add(response.prompt_tokens(), {tenant, {"kind", "input"}});
    telemetry::get_metrics().tenant_tokens.add(response.output_tokens(), {tenant, {"kind", "output"}});
  }
}

void SamplingController::record_failure(const Operation& operation, const Error& error) const {
  const double seconds = to_seconds(parts_.clock.monotonic() - operation.placed);
  operation.backend->instruments().record_sample_failure(error, operation.num_samples, seconds);
}

}  // namespace tuft::control
