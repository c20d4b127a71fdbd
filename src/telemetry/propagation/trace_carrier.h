// Reads and writes the texts that carry request traces between servers. Internal to telemetry.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "telemetry/request_trace.h"

namespace tuft::telemetry::internal {

// Returns base64 of {"<room>": <TraceProcContext::to_json()>, ...}; "" for an empty map.
std::string to_remote_carrier(const std::map<uint64_t, TraceProcContext>& by_room);

// Leaves out rooms whose context is invalid. Malformed text gives an empty map and is counted; "" and "None" are not
// counted.
std::map<uint64_t, TraceProcContext> from_remote_carrier(std::string_view base64);

}  // namespace tuft::telemetry::internal
