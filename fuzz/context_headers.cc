// Parses the headers tracestate and baggage, and the carrier of request traces.
#include "telemetry/propagation/context_headers.h"

#include "target.h"
#include "telemetry/propagation/trace_carrier.h"

namespace internal = tuft::telemetry::internal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = tuft::fuzz::text_of(data, size);
  if (const auto state = internal::parse_tracestate(text)) {
    tuft::fuzz::require(state->size() <= 512);
    tuft::fuzz::require(internal::parse_tracestate(*state) == state);
  }
  if (const auto baggage = internal::parse_baggage(text)) {
    tuft::fuzz::require(baggage->size() <= 8192);
    tuft::fuzz::require(internal::parse_baggage(*baggage) == baggage);
  }
  (void)internal::from_remote_carrier(text);
  return 0;
}
