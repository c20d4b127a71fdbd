// The telemetry of a request: the span oai.proxy_inference, a log event at its end, and tuft.openai.requests.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "control/sampling/generation.h"
#include "openai/answers.h"
#include "telemetry/trace.h"

namespace tuft::openai {

// Move-only; confined to one thread at a time.
class CompletionTelemetry {
 public:
  // `trace` is the span of the HTTP request, `arrived` a time of Clock::monotonic().
  CompletionTelemetry(const Request& request, const control::GenerationModel& model, const control::UserId& user,
                      const control::RequestId& id, const telemetry::SpanContext& trace, Nanos arrived);

  // The parent of all other spans of the request.
  const telemetry::SpanContext& context() const { return span_.context(); }
  void prepared(int64_t prompt_tokens);
  void first_tokens();
  void completed(const TokenUsage& usage, int64_t stopped, int64_t cut);
  void failed(const Error& error);

 private:
  void count(std::string_view status) const;

  Endpoint endpoint_;
  std::string base_model_;
  std::string user_;
  std::string request_;
  Nanos arrived_;
  bool streamed_;
  bool first_ = true;
  telemetry::Span span_;
};

// Records a request that was refused before its generation. `base_model` may be empty.
void record_refusal(Endpoint endpoint, std::string_view base_model, const Error& error);
// Records the seconds from the arrival of a request until its prompt was encoded.
void record_preparation(Endpoint endpoint, double seconds);

}  // namespace tuft::openai
