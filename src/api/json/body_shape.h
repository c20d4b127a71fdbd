// Judges a large body before a parser makes objects of it: how many parts it has, and the memory that they will take.
//
// A part is a field of a protobuf message, an element of a tensor's shape, a JSON object or list, or a member of an
// object. Numbers in lists are not parts. The errors: kPayloadTooLarge over limits.request_parts_max, kInvalidArgument
// for a damaged message, and those of hold_memory().
#pragma once

#include <cstdint>
#include <string_view>

#include "api/exchange.h"
#include "base/result.h"

namespace tuft::api {

struct PassShape {
  int64_t parts = 0;
  // The first field that is not in our schema, by its message and number, as kInvalidArgument "unknown_field".
  // libprotobuf would ignore it, and a newer client would get another result than it asked for.
  Status known;
};

// Both charge the memory to the user of the exchange. Short bodies are charged nothing: their number is bounded.
Status admit_json(Exchange& exchange);
// Admits a tinker_public.ForwardBackwardRequest. Also checks that its strings are UTF-8. Returns PassShape::known apart
// from its other errors, because a request that can be read uses its seq_id up.
Result<Status> admit_pass(Exchange& exchange);

// Counts at most `most` + 1 parts. kInvalidArgument for a damaged message.
Result<PassShape> scan_pass(std::string_view message, int64_t most);

}  // namespace tuft::api
