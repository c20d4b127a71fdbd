// tracestate and baggage: their rules, and where they lie while a request is worked on. Internal to telemetry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tuft::telemetry::internal {

// As it is to be sent on: blanks and empty members taken out, and where it is over 512 bytes, first the members over
// 128 bytes and then the last ones. Nothing where a member is malformed or there are more than 32.
std::optional<std::string> parse_tracestate(std::string_view header);

// As it came, but for members beyond 64 or 8192 bytes. Nothing where a member is malformed.
std::optional<std::string> parse_baggage(std::string_view header);

struct CarriedHeaders {
  std::string tracestate = {};
  std::string baggage = {};
};

// Keeps them for a while and gives the number for SpanContext::carried; 0 where there is nothing to keep. At most 4096
// and 8 MiB are kept, the newest. Thread-safe.
uint32_t carry_headers(CarriedHeaders headers);
CarriedHeaders carried_headers(uint32_t number);

}  // namespace tuft::telemetry::internal
