#include "worker/sample_trace.h"

#include <algorithm>
#include <vector>

#include "telemetry/log.h"
#include "telemetry/request_trace.h"
#include "worker/operation_base.h"

namespace tuft::worker {
namespace {

using telemetry::Attribute;
using telemetry::Attributes;
using telemetry::TraceSpanName;

struct Output {
  int64_t tokens = 0;
  int stopped = 0;  // sequences
  int cut = 0;
};

Output count_output(const engine::SampleResult& result) {
  Output output;
  for (const engine::SampledSequence& sequence : result.sequences) {
    output.tokens += static_cast<int64_t>(sequence.tokens.size());
    ++(sequence.reason == engine::StopReason::kStop ? output.stopped : output.cut);
  }
  return output;
}

std::string_view finish_reasons(const Output& output) {
  if (output.stopped > 0 && output.cut > 0) return "stop,length";
  return output.stopped > 0 ? "stop" : "length";
}

std::vector<Attribute> request_keys(const Caller& caller, const SampleFacts& facts, const std::string& base_model) {
  std::vector<Attribute> keys = share_keys(caller.ids, base_model);
  if (!facts.sampler_id.empty()) keys.push_back({"tuft.sampler_id", facts.sampler_id});
  if (facts.lora_rank > 0) keys.push_back({"tuft.lora_rank", facts.lora_rank});
  return keys;
}

void describe_request(const SampleFacts& facts, const std::string& base_model, telemetry::Span& span) {
  span.set_attributes({{"tuft.has_lora", !facts.sampler_id.empty()},
                       {"tuft.num_samples", facts.num_samples},
                       {"tuft.prompt_tokens", facts.prompt_tokens},
                       {"tuft.prompt_logprobs", facts.prompt_logprobs},
                       {"tuft.seed_set", facts.seeded},
                       {"gen_ai.request.model", base_model},
                       {"gen_ai.request.choice.count", facts.num_samples},
                       {"gen_ai.request.temperature", facts.temperature},
                       {"gen_ai.request.top_p", facts.top_p}});
  if (facts.top_k > 0) span.set_attribute("gen_ai.request.top_k", facts.top_k);
  if (facts.max_tokens) span.set_attribute("gen_ai.request.max_tokens", *facts.max_tokens);
  // An event, because a span has room for few attributes.
  const bool is_plain = facts.topk_logprobs == 0 && facts.prompt_alt_tokens == 0 && facts.target_cells == 0;
  if (is_plain && facts.ends_at_eos) return;
  span.add_event("options", {{"tuft.topk_logprobs", facts.topk_logprobs},
                             {"tuft.prompt_alt_tokens", facts.prompt_alt_tokens},
                             {"tuft.target_cells", facts.target_cells},
                             {"tuft.eos_stops", facts.ends_at_eos}});
}

void add_events(const SampleFacts& facts, const Output& output, const engine::SampleResult& result,
                telemetry::Span& span) {
  if (result.cached_tokens > 0) {
    span.add_event("cache_hit", {{"tuft.cached_tokens", result.cached_tokens}}, result.times.started);
  }
  if (output.tokens > 0) {
    span.add_event("first_token", {{"tuft.prompt_tokens", facts.prompt_tokens}}, result.times.first_token);
  }
  for (const engine::Interruption& interruption : result.interruptions) {
    span.add_event("preempted", {{"tuft.tokens", interruption.tokens}}, interruption.preempted);
    span.add_event("resumed", {{"tuft.tokens", interruption.tokens}}, interruption.resumed);
  }
}

void describe_result(const SampleFacts& facts, const Output& output, const engine::SampleResult& result,
                     telemetry::Span& span) {
  const engine::SampleTimes& times = result.times;
  span.set_attributes({{"tuft.output_tokens", output.tokens},
                       {"tuft.finish_reasons", finish_reasons(output)},
                       {"tuft.cached_tokens", result.cached_tokens},
                       {"tuft.preemptions", result.preemptions},
                       {"tuft.queue_seconds", times.queue_seconds()},
                       {"tuft.prefill_seconds", times.prefill_seconds()},
                       {"tuft.decode_seconds", times.decode_seconds()},
                       {"gen_ai.usage.input_tokens", facts.prompt_tokens},
                       {"gen_ai.usage.cache_read.input_tokens", result.cached_tokens},
                       {"gen_ai.usage.output_tokens", output.tokens},
                       {"gen_ai.latency.time_in_queue", times.queue_seconds()},
                       {"gen_ai.latency.time_in_model_prefill", times.prefill_seconds()},
                       {"gen_ai.latency.time_in_model_decode", times.decode_seconds()},
                       {"gen_ai.latency.time_to_first_token", to_seconds(times.first_token - times.arrived)},
                       {"gen_ai.latency.e2e", to_seconds(times.ended - times.arrived)}});
  add_events(facts, output, result, span);
}

// The stage of the server that handed the request over, in the same trace.
telemetry::SpanContext previous_stage(const Caller& caller) {
  telemetry::SpanContext stage = caller.trace;
  stage.span_id = caller.ids.previous_stage();
  return stage;
}

void report_row(const telemetry::SpanContext& parent, const telemetry::SpanContext& previous, const SampleFacts& facts,
                const Output& output, const engine::SampleResult& result, Nanos converted) {
  const engine::SampleTimes& times = result.times;
  const Attribute prompt[] = {{"tuft.prompt_tokens", facts.prompt_tokens},
                              {"tuft.cached_tokens", result.cached_tokens}};
  const Attribute tokens[] = {{"tuft.output_tokens", output.tokens},
                              {"tuft.num_samples", facts.num_samples},
                              {"tuft.preemptions", result.preemptions},
                              {"tuft.finish_reasons", finish_reasons(output)}};
  std::vector<telemetry::TraceStage> stages = {
      {TraceSpanName::SCHEDULE, times.arrived, times.started, {}},
      {TraceSpanName::PREFILL, times.started, times.first_token, Attributes(prompt)}};
  if (output.tokens > 0) stages.push_back({TraceSpanName::DECODE, times.first_token, times.ended, Attributes(tokens)});
  stages.push_back({TraceSpanName::POSTPROCESS, times.ended, converted, {}});
  telemetry::report_stages(parent, stages, previous);
}

void log_result(std::vector<Attribute> attributes, const Output& output, const engine::SampleResult& result) {
  const engine::SampleTimes& times = result.times;
  attributes.insert(attributes.end(), {{"tuft.output_tokens", output.tokens},
                                       {"tuft.finish_reasons", finish_reasons(output)},
                                       {"tuft.cached_tokens", result.cached_tokens},
                                       {"tuft.preemptions", result.preemptions},
                                       {"tuft.queue_seconds", times.queue_seconds()},
                                       {"tuft.prefill_seconds", times.prefill_seconds()},
                                       {"tuft.decode_seconds", times.decode_seconds()}});
  telemetry::log_debug("sampling.completed", "hf_model.sample", Attributes(attributes));
}

void log_failure(std::vector<Attribute> attributes, const Error& error) {
  attributes.push_back({"error.type", error_code_name(error.code)});
  telemetry::log(is_user_error(error.code) ? telemetry::Severity::kWarning : telemetry::Severity::kError,
                 "sampling.failed", error.message, Attributes(attributes));
}

}  // namespace

SampleFacts facts_of(const engine::SampleRequest& request, const std::string& sampler_id) {
  return {.sampler_id = sampler_id,
          .lora_rank = 0,
          .prompt_tokens = static_cast<int64_t>(request.prompt.size()),
          .num_samples = request.num_samples,
          .max_tokens = request.params.max_tokens,
          .temperature = static_cast<double>(request.params.temperature),
          .top_p = static_cast<double>(request.params.top_p),
          .top_k = request.params.top_k,
          .seeded = request.params.seed.has_value(),
          .prompt_logprobs = request.prompt_logprobs || request.topk_prompt_logprobs > 0,
          .topk_logprobs = request.topk_logprobs,
          .prompt_alt_tokens = request.prompt_alt_tokens,
          .target_cells = static_cast<int64_t>(request.prompt_targets.tokens.size()),
          .ends_at_eos = request.params.ends_at_eos};
}

void log_sample_begin(const Caller& caller, const SampleFacts& facts, const std::string& base_model) {
  std::vector<Attribute> attributes = request_keys(caller, facts, base_model);
  attributes.insert(attributes.end(),
                    {{"tuft.prompt_tokens", facts.prompt_tokens}, {"tuft.num_samples", facts.num_samples}});
  const telemetry::ContextScope scope(caller.trace);
  telemetry::log_debug("sampling.begin", "hf_model.sample", Attributes(attributes));
}

void record_sample(const Caller& caller, const SampleFacts& facts, const std::string& base_model,
                   const Result<engine::SampleResult>& result, Nanos converted) {
  std::vector<Attribute> keys = request_keys(caller, facts, base_model);
  auto span = engine_tracer().start_span(
      "hf_model.sample", {.attributes = Attributes(keys), .parent = caller.trace, .start = caller.arrived});
  if (span.recording()) describe_request(facts, base_model, span);
  const telemetry::ContextScope scope(span.context());
  if (!result.ok()) {
    span.record_error(result.error());
    log_failure(std::move(keys), result.error());
  } else {
    const Output output = count_output(*result);
    if (span.recording()) {
      describe_result(facts, output, *result, span);
      report_row(span.context(), previous_stage(caller), facts, output, *result, converted);
    }
    log_result(std::move(keys), output, *result);
  }
  span.end(converted);
}

}  // namespace tuft::worker
