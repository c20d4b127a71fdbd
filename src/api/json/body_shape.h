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

// Both charge the memory to the user of the exchange. Short bodies are charged nothing: their number is bounded.
Status admit_json(Exchange& exchange);
// For a tinker_public.ForwardBackwardRequest. Also checks that its strings are UTF-8.
Status admit_pass(Exchange& exchange);

// Returns the number of parts, at most `most` + 1; or kInvalidArgument.
Result<int64_t> count_pass_parts(std::string_view message, int64_t most);

}  // namespace tuft::api
