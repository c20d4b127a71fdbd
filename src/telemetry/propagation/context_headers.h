// Parses tracestate and baggage, and keeps them while a request runs. Internal to telemetry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tuft::telemetry::internal {

// Returns the tracestate to send on: without blanks and empty members and, if it is over 512 bytes, without the members
// over 128 bytes and then without the last ones. Returns nullopt if a member is malformed or there are more than 32.
std::optional<std::string> parse_tracestate(std::string_view header);

// Returns the baggage without the members beyond 64 or beyond 8192 bytes. Returns nullopt if a member is malformed.
std::optional<std::string> parse_baggage(std::string_view header);

struct CarriedHeaders {
  std::string tracestate = {};
  std::string baggage = {};
};

// Keeps the headers and returns the number for SpanContext::carried; 0 if they are empty. The newest 4096, and at most
// 8 MiB, are kept. Thread-safe.
uint32_t carry_headers(CarriedHeaders headers);
CarriedHeaders carried_headers(uint32_t number);

}  // namespace tuft::telemetry::internal
