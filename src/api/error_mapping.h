// Errors as HTTP answers: {"detail": "..."} with a status that makes the Tinker SDK do the right thing. It retries 408,
// 409, 429 and everything from 500 on for minutes, so that none of those stands for something permanent.
#pragma once

#include <string>
#include <string_view>

#include "api/exchange.h"
#include "base/error.h"

namespace tuft::api {

// The reason of errors that mean "this body does not have the documented fields": 422 instead of 400.
inline constexpr std::string_view kMalformedRequest = "malformed_request";

// The reason of bodies that are not the protobuf message of their route.
inline constexpr std::string_view kInvalidProtobuf = "invalid_protobuf";

Error malformed_request(std::string message);

int http_status(const Error& error);

Response detail_response(int status, std::string_view detail);

// Of internal errors the client learns only that there was one; the message goes to the log.
Response error_response(const Error& error, ErrorShape shape = ErrorShape::kDetail);

// The message that a client may see.
std::string public_message(const Error& error);

}  // namespace tuft::api
