#include "worker/sample_trace.h"

#include "worker/operation_base.h"

namespace tuft::worker {
namespace {

Nanos nanos(double seconds) {
  return static_cast<Nanos>(seconds * 1e9);
}

void record_stage(telemetry::Name name, const telemetry::SpanContext& parent, Nanos begin, Nanos end) {
  auto span = engine_tracer().start_span(name, {.parent = parent, .start = begin});
  span.end(end);
}

}  // namespace

void record_sample(const Caller& caller, const SampleFacts& facts, const Result<engine::SampleResult>& result,
                   const Clock& clock) {
  const Nanos now = clock.monotonic();
  auto span = engine_tracer().start_span("hf_model.sample", {.parent = caller.trace, .start = caller.arrived});
  span.set_attributes({{"tuft.sampler_id", facts.sampler_id},
                       {"tuft.has_lora", !facts.sampler_id.empty()},
                       {"tuft.num_samples", facts.num_samples},
                       {"tuft.prompt_tokens", facts.prompt_tokens}});
  if (!result.ok()) {
    span.record_error(result.error());
    span.end(now);
    return;
  }
  int64_t output_tokens = 0;
  for (const auto& sequence : result->sequences) output_tokens += static_cast<int64_t>(sequence.tokens.size());
  span.set_attributes({{"tuft.output_tokens", output_tokens},
                       {"tuft.queue_seconds", result->queue_seconds},
                       {"tuft.prefill_seconds", result->prefill_seconds},
                       {"tuft.decode_seconds", result->decode_seconds}});
  const Nanos first_token = now - nanos(result->decode_seconds);
  const Nanos started = first_token - nanos(result->prefill_seconds);
  record_stage("engine.queue", span.context(), caller.arrived, started);
  record_stage("engine.prefill", span.context(), started, first_token);
  record_stage("engine.decode", span.context(), first_token, now);
  span.end(now);
}

}  // namespace tuft::worker
