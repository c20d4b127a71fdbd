// Maps errors to HTTP responses with the body {"detail": "..."}. The Tinker SDK retries 408, 409, 429 and every status
// from 500 on for minutes, so permanent errors never have one of these.
#pragma once

#include <string>
#include <string_view>

#include "api/exchange.h"
#include "base/error.h"

namespace tuft::api {

// The reason of requests with missing or wrong fields; their status is 422 instead of 400.
inline constexpr std::string_view kMalformedRequest = "malformed_request";

// The reason of a body that is not the protobuf message of its route.
inline constexpr std::string_view kInvalidProtobuf = "invalid_protobuf";

Error malformed_request(std::string message);

int http_status(const Error& error);

Response detail_response(int status, std::string_view detail);

// Returns the response for `error`. The message of an internal error goes to the log only.
Response error_response(const Error& error, ErrorShape shape = ErrorShape::kDetail);

// Returns the message that a client may see.
std::string public_message(const Error& error);

}  // namespace tuft::api
