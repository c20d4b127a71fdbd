// The texts in which request traces travel between servers. Internal to telemetry.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "telemetry/request_trace.h"

namespace tuft::telemetry::internal {

// Base64 of {"<room>": <TraceProcContext::to_json()>, ...}; "" for none.
std::string to_remote_carrier(const std::map<uint64_t, TraceProcContext>& by_room);

// Rooms whose context is no context are left out. Empty, and counted, for text that is malformed; "" and "None" are
// not.
std::map<uint64_t, TraceProcContext> from_remote_carrier(std::string_view base64);

}  // namespace tuft::telemetry::internal
