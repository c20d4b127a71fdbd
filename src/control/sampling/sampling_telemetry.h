// The spans, metrics and usage counts of samples.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "control/accounts/usage.h"
#include "telemetry/trace.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

class SampleOperation;

// Thread-safe, but one operation belongs to one thread at a time.
class SamplingTelemetry {
 public:
  // `tenant_label`: tokens are counted by user, too (telemetry.tenant_label).
  SamplingTelemetry(const Clock& clock, Usage& usage, bool tenant_label)
      : clock_(clock), usage_(usage), tenant_label_(tenant_label) {}

  // The operation was accepted: opens its span.
  static void begin(SampleOperation& operation, const telemetry::SpanContext& parent);
  // The request goes to the worker: opens the span around the call.
  void begin_call(SampleOperation& operation, const worker::v1::SampleRequest& request) const;
  // The worker has answered: closes that span.
  static void end_call(SampleOperation& operation, const Result<worker::v1::SampleResponse>& result);
  // The operation has ended: counts it and closes its span.
  void end(SampleOperation& operation, const Result<worker::v1::SampleResponse>& result) const;

 private:
  void count_tokens(const SampleOperation& operation, const worker::v1::SampleResponse& response) const;

  const Clock& clock_;
  Usage& usage_;
  const bool tenant_label_;
};

// Returns the tracer of the spans sampling_controller.*.
const telemetry::Tracer& sampling_controller_tracer();
// Returns the tracer of the spans sampling_backend.*.
const telemetry::Tracer& sampling_backend_tracer();

}  // namespace tuft::control
