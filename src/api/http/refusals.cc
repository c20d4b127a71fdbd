#include "api/http/refusals.h"

#include <string>
#include <string_view>
#include <utility>

#include "api/http/request_head.h"
#include "api/json/error_mapping.h"
#include "api/routing/http_telemetry.h"
#include "api/routing/media.h"

namespace tuft::api {
namespace {

// `what` is, for instance, "request bodies being received", `reason` the last part of the limit's name.
Error no_room(bool of_user, std::string_view what, std::string_view limit, int64_t most, std::string reason) {
  const std::string text =
      std::string(what) + " use all memory for them (limits." + std::string(limit) + " is " + std::to_string(most);
  if (!of_user) return unavailable("the " + text + "); try again", std::move(reason));
  return {ErrorCode::kResourceExhausted, "your " + text + ", half of it for one user); try again", std::move(reason)};
}

Error no_room_for_body(bool of_user, const config::Limits& limits) {
  return no_room(of_user, "request bodies being received", "receiving_bytes_max", limits.receiving_bytes_max,
                 "receiving");
}

}  // namespace

Error no_room_for_answer(bool of_user, const config::Limits& limits) {
  return no_room(of_user, "answers that wait to be read", "sending_bytes_max", limits.sending_bytes_max, "sending");
}

std::optional<Response> refusal_of(Read outcome, const Admission& admission, const config::Limits& limits) {
  std::string_view label;
  std::optional<Response> response;
  const ErrorShape shape = admission.match.route == nullptr ? ErrorShape::kDetail : admission.match.route->route.errors;
  switch (outcome) {
    case Read::kDone:
    case Read::kClosed:
      return std::nullopt;
    case Read::kTimedOut:
      response =
          detail_response(408, "the request did not arrive within " + std::to_string(limits.request_timeout_seconds) +
                                   " s (limits.request_timeout_seconds)");
      label = "timeout";
      break;
    case Read::kMalformed:
      response = detail_response(400,
                                 "this is not valid HTTP/1.1, or the head of a chunk or the trailer of its body is "
                                 "longer than " +
                                     std::to_string(kChunkHeadBytesMax) + " bytes");
      label = "malformed";
      break;
    case Read::kHeaderTooLarge:
      response = detail_response(431, "the request's head is larger than " + std::to_string(limits.header_bytes_max) +
                                          " bytes (limits.header_bytes_max), or has more than " +
                                          std::to_string(kHeaderFieldsMax) + " fields");
      label = "header_too_large";
      break;
    case Read::kNoRoomForHead:
      response = detail_response(503,
                                 "long request heads of yours, or of all, use all memory for them "
                                 "(limits.unfinished_head_bytes_max is " +
                                     std::to_string(limits.unfinished_head_bytes_max) +
                                     ", a quarter of it for one address or user)");
      label = "heads_overloaded";
      break;
    case Read::kBodyTooLarge:
      response = error_response(body_too_large(admission.body_limit, "request body"), shape);
      label = "body_too_large";
      break;
    case Read::kNoRoom:
      response = error_response(no_room_for_body(false, limits), shape);
      label = "receiving_overloaded";
      break;
    case Read::kNoShare:
      response = error_response(no_room_for_body(true, limits), shape);
      label = "user_receiving_overloaded";
      break;
  }
  HttpTelemetry::count_rejected(label);
  if (outcome == Read::kMalformed) HttpTelemetry::count_parse_error("http");
  if (outcome == Read::kHeaderTooLarge) HttpTelemetry::count_parse_error("header");
  return response;
}

}  // namespace tuft::api
