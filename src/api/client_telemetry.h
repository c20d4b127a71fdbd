// What the SDK tells about itself (POST /telemetry) as log records and counters of ours. Event data can hold headers
// with API keys, messages can hold prompts, tracebacks can hold both: only names out of closed sets, the severity,
// numbers and ids leave this file.
#pragma once

#include <string>

namespace tuft::api {

// Never fails: what it does not understand is counted as event "malformed". Reads at most 100 events.
void record_client_events(std::string& body);

}  // namespace tuft::api
