#include "openai/completion_telemetry.h"

#include "metrics/sampling.h"
#include "telemetry/log.h"

namespace tuft::openai {
namespace {

const telemetry::Tracer& tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.oai");
  return instance;
}

std::string_view status_of(const Error& error) {
  return error.code == ErrorCode::kCancelled ? "cancelled" : "failed";
}

}  // namespace

CompletionTelemetry::CompletionTelemetry(const Request& request, const control::GenerationModel& model,
                                         const control::UserId& user, const control::RequestId& id,
                                         const telemetry::SpanContext& trace, Nanos arrived)
    : endpoint_(request.endpoint),
      base_model_(model.base_model),
      user_(user.str()),
      request_(id.str()),
      arrived_(arrived),
      streamed_(request.stream),
      span_(tracer().start_span("oai.proxy_inference", {.attributes = {}, .parent = trace, .start = arrived})) {
  if (!span_.recording()) return;
  const bool chat = endpoint_ == Endpoint::kChat;
  span_.set_attributes({{"oai.endpoint", chat ? "/v1/chat/completions" : "/v1/completions"},
                        {"oai.model", request.model},
                        {"oai.user_id", user_},
                        {"oai.base_model", base_model_},
                        {"tuft.request_id", request_},
                        {"tuft.base_model", base_model_},
                        {"gen_ai.operation.name", chat ? "chat" : "text_completion"},
                        {"gen_ai.provider.name", "tuft"},
                        {"gen_ai.request.model", base_model_},
                        {"gen_ai.request.stream", streamed_},
                        {"gen_ai.request.choice.count", request.choices},
                        {"gen_ai.request.temperature", request.params.temperature()},
                        {"gen_ai.request.top_p", request.params.top_p()},
                        {"gen_ai.response.model", request.model}});
  if (!model.tinker_path.empty()) span_.set_attribute("oai.lora_id", model.tinker_path);
  if (request.params.has_max_tokens()) {
    span_.set_attribute("gen_ai.request.max_tokens", request.params.max_tokens());
  }
}

void CompletionTelemetry::prepared(int64_t prompt_tokens) {
  span_.add_event("prepared", {{"tuft.prompt_tokens", prompt_tokens}});
}

void CompletionTelemetry::first_tokens() {
  if (!std::exchange(first_, false)) return;
  span_.set_attribute("gen_ai.response.time_to_first_chunk", to_seconds(system_clock().monotonic() - arrived_));
}

void CompletionTelemetry::count(std::string_view status) const {
  metrics::sampling().openai_requests.add(
      1, {{"endpoint", endpoint_name(endpoint_)}, {"base_model", base_model_}, {"status", status}});
}

void CompletionTelemetry::completed(const TokenUsage& usage, int64_t stopped, int64_t cut) {
  count("ok");
  span_.set_attributes({{"gen_ai.usage.input_tokens", usage.prompt},
                        {"gen_ai.usage.output_tokens", usage.completion},
                        {"gen_ai.usage.cache_read.input_tokens", usage.cached},
                        {"tuft.finished.stop", stopped},
                        {"tuft.finished.length", cut}});
  {
    const telemetry::ContextScope scope(span_.context());
    telemetry::log_debug("openai.completed", "request answered",
                         {{"tuft.request_id", request_},
                          {"tuft.base_model", base_model_},
                          {"tuft.endpoint", endpoint_name(endpoint_)},
                          {"tuft.prompt_tokens", usage.prompt},
                          {"tuft.output_tokens", usage.completion},
                          {"tuft.seconds", to_seconds(system_clock().monotonic() - arrived_)}});
  }
  span_.end();
}

void CompletionTelemetry::failed(const Error& error) {
  const std::string_view status = status_of(error);
  count(status);
  span_.record_error(error);
  {
    const telemetry::ContextScope scope(span_.context());
    const bool ours = !is_user_error(error.code) && status != "cancelled";
    telemetry::log(ours ? telemetry::Severity::kError : telemetry::Severity::kInfo, "openai.failed",
                   "request ended without an answer",
                   {{"tuft.request_id", request_},
                    {"tuft.base_model", base_model_},
                    {"tuft.endpoint", endpoint_name(endpoint_)},
                    {"error.type", error_code_name(error.code)},
                    {"tuft.error.reason", error.reason}});
  }
  span_.end();
}

void record_refusal(Endpoint endpoint, std::string_view base_model, const Error& error) {
  metrics::sampling().openai_requests.add(1, {{"endpoint", endpoint_name(endpoint)},
                                              {"base_model", base_model.empty() ? "unknown" : base_model},
                                              {"status", "rejected"}});
  // Without the message, because an exception of a template may quote the conversation.
  telemetry::log_debug("openai.refused", "request refused",
                       {{"tuft.endpoint", endpoint_name(endpoint)},
                        {"error.type", error_code_name(error.code)},
                        {"tuft.error.reason", error.reason}});
}

void record_preparation(Endpoint endpoint, double seconds) {
  metrics::sampling().openai_prepare_duration.record(seconds, {{"endpoint", endpoint_name(endpoint)}});
}

}  // namespace tuft::openai
