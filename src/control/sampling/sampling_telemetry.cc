#include "control/sampling/sampling_telemetry.h"

#include "control/sampling/sample_operation.h"
#include "control/types/operation_keys.h"
#include "metrics/tenants.h"
#include "telemetry/context.h"
#include "telemetry/instrument.h"

namespace tuft::control {

const telemetry::Tracer& sampling_controller_tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.sampling_controller");
  return instance;
}

const telemetry::Tracer& sampling_backend_tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.sampling_backend");
  return instance;
}

void SamplingTelemetry::begin(SampleOperation& operation, const telemetry::SpanContext& parent) {
  operation.span = sampling_controller_tracer().start_span(
      "sampling_controller.run_sample",
      {.attributes = KeyAttributes(*operation.keys, {{"tuft.num_samples", operation.num_samples}}), .parent = parent});
}

void SamplingTelemetry::begin_call(SampleOperation& operation, const worker::v1::SampleRequest& request) const {
  const OperationKeys& keys = *operation.keys;
  const bool has_lora = operation.adapter->checkpoint != nullptr;
  const tinker_public::SamplingParams& params = request.params();
  telemetry::Span& span = operation.backend_span;
  span = sampling_backend_tracer().start_span("sampling_backend.sample",
                                              {.attributes = KeyAttributes(keys), .parent = operation.span.context()});
  span.set_attributes({{"tuft.num_samples", request.num_samples()},
                       {"tuft.has_lora", has_lora},
                       {"gen_ai.operation.name", "text_completion"},
                       {"gen_ai.provider.name", "tuft"},
                       {"gen_ai.request.model", keys.base_model},
                       {"gen_ai.request.max_tokens", params.max_tokens()}});
  if (has_lora) span.set_attribute("tuft.lora_id", request.sampler_id());
  if (params.has_temperature()) span.set_attribute("gen_ai.request.temperature", params.temperature());
  if (params.has_top_p()) span.set_attribute("gen_ai.request.top_p", params.top_p());
  if (params.has_top_k()) span.set_attribute("gen_ai.request.top_k", params.top_k());
  operation.sent = clock_.monotonic();
}

void SamplingTelemetry::end_call(SampleOperation& operation, const Result<worker::v1::SampleResponse>& result) {
  telemetry::Span& span = operation.backend_span;
  if (!result.ok()) {
    span.record_error(result.error());
  } else {
    const int stopped = result->stopped_sequences();
    span.set_attributes({{"gen_ai.usage.input_tokens", result->prompt_tokens()},
                         {"gen_ai.usage.output_tokens", result->output_tokens()},
                         {"tuft.output_tokens", result->output_tokens()},
                         {"tuft.finished.stop", stopped},
                         {"tuft.finished.length", result->sequence_tokens_size() - stopped},
                         {"tuft.queue_seconds", result->queue_seconds()},
                         {"tuft.prefill_seconds", result->prefill_seconds()},
                         {"tuft.decode_seconds", result->decode_seconds()}});
  }
  span.end();
}

void SamplingTelemetry::end(SampleOperation& operation, const Result<worker::v1::SampleResponse>& result) const {
  const double seconds = to_seconds(clock_.monotonic() - operation.placed);
  const ModelInstruments& instruments = operation.adapter->model->facts().instruments();
  // Exemplars lead from the histograms to this span.
  const telemetry::ContextScope scope(operation.span.context());
  if (result.ok()) {
    instruments.record_sample(*result, to_seconds(operation.sent - operation.placed), seconds);
    count_tokens(operation, *result);
    if (result->records_size() > 0) operation.span.set_attribute("tuft.recorded_sequences", result->records_size());
  } else {
    instruments.record_sample_failure(result.error(), operation.num_samples, seconds);
    operation.span.record_error(result.error());
  }
  operation.span.end();
}

void SamplingTelemetry::count_tokens(const SampleOperation& operation,
                                     const worker::v1::SampleResponse& response) const {
  const OperationKeys& keys = *operation.keys;
  const UserId& user = operation.user;
  const int64_t cached = response.cached_tokens();
  usage_.add(user, keys, UsageKind::kSamplingPrefill, response.prompt_tokens() - cached);
  usage_.add(user, keys, UsageKind::kSamplingPrefillCached, cached);
  usage_.add(user, keys, UsageKind::kSamplingOutput, response.output_tokens());
  if (!tenant_label_) return;
  const telemetry::Label tenant = {"tenant", user.str()};
  metrics::tenants().tenant_tokens.add(response.prompt_tokens(), {tenant, {"kind", "input"}});
  metrics::tenants().tenant_tokens.add(response.output_tokens(), {tenant, {"kind", "output"}});
}

}  // namespace tuft::control
