// The parameters of the questions to the observer. Nothing that a client sends is ignored: an unknown or repeated
// parameter is a problem that names it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/exchange.h"
#include "api/routing/query.h"
#include "control/observe/views.h"
#include "telemetry_store/query.h"

namespace tuft::api {

// Nobody between the server and its reader may keep the answer: it is one user's.
void forbid_keeping(Response& response);
// A JSON answer that nobody may keep.
Response observed_response(std::string json);
inline Answer observed_answer(std::string json) {
  return observed_response(std::move(json));
}

// The keys of read_filter(), and further ones, for QueryFields::only().
std::vector<std::string_view> filter_keys(std::vector<std::string_view> more);

// Reads `from` and `until`: microseconds since the epoch, or "-15m" (s, m, h, d). By default the last hour.
telemetry_store::TimeRange read_range(QueryFields& query, Nanos now);
telemetry_store::Filter read_filter(QueryFields& query, Nanos now);
telemetry_store::PageOf read_page(QueryFields& query, int64_t limit_default, int64_t limit_max);
// The same for lists that have no order of their own: the cursor is an offset.
control::Part read_part(QueryFields& query);
// Reads a duration in microseconds; 0 if it is absent. At most 2,000 steps may cover `range`.
Nanos read_step(QueryFields& query, const telemetry_store::TimeRange& range);
// Reads hexadecimal digits, `digits` of them; empty if it is absent.
std::string read_hex(QueryFields& query, std::string_view key, size_t digits);

}  // namespace tuft::api
