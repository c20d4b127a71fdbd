// What telemetry hears of one request: the span oai.proxy_inference, a log event at its end, tuft.openai.requests.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "control/generation.h"
#include "openai/answers.h"
#include "telemetry/trace.h"

namespace tuft::openai {

// Move-only; confined to one thread at a time.
class CompletionRecord {
 public:
  // `trace`: of the HTTP request. `arrived`: Clock::monotonic().
  CompletionRecord(const Request& request, const control::GenerationModel& model, const control::UserId& user,
                   const control::RequestId& id, const telemetry::SpanContext& trace, Nanos arrived);

  // The parent of what is done for the request.
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

// A request that never got as far as a generation; `base_model` may be empty.
void record_refusal(Endpoint endpoint, std::string_view base_model, const Error& error);
// Seconds from arrival until the prompt's tokens were known.
void record_preparation(Endpoint endpoint, double seconds);

}  // namespace tuft::openai
