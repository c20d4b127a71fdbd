// One HTTP request and its answer, as handlers see them: no sockets, no HTTP library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/result.h"
#include "config/config.h"
#include "control/control_plane.h"
#include "telemetry/context.h"

namespace tuft::api {

enum class ContentType : uint8_t { kJson, kProtobuf };

struct Response {
  int status = 200;
  ContentType content_type = ContentType::kJson;
  std::string body;
  // Where set, the body is this instead: bytes that a finished future owns, sent without a copy.
  std::shared_ptr<const std::string> shared_body;
  std::string_view allow;  // of a 405; static
  bool close = false;      // end the connection after it

  std::string_view bytes() const { return shared_body ? std::string_view(*shared_body) : std::string_view(body); }
};

inline Response json_response(std::string body, int status = 200) {
  Response response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

struct Exchange;

// The answer comes once the future is finished or the long poll is over; then `finish` makes it.
struct AwaitFuture {
  control::RequestId request;
  Result<Response> (*finish)(Exchange& exchange, const control::FutureSnapshot& snapshot) = nullptr;
};

using Answer = std::variant<Response, AwaitFuture>;

inline Answer json_answer(std::string body) {
  return json_response(std::move(body));
}

// The headers that somebody reads; empty where absent. Views into the connection's buffers: valid during the exchange.
struct RequestHeaders {
  std::string_view accept;
  std::string_view api_key;
  std::string_view content_encoding;
  std::string_view content_type;
  std::string_view idempotency_key;
  std::string_view poll_iteration;
  std::string_view traceparent;
  std::string_view user_agent;
};

// Ids that a handler came across, for the server span.
struct SpanIds {
  std::string request;
  std::string session;
  std::string training_run;
  std::string sampling_session;
};

// Confined to the connection's thread.
struct Exchange {
  control::ControlPlane& control;
  const config::Limits& limits;

  RequestHeaders headers = {};
  std::string path_parameter = {};  // the "{id}" of the route, percent-decoded
  std::string body = {};            // without its content encoding
  control::UserId user = {};        // empty on open routes
  telemetry::SpanContext trace = {};

  // Told by handlers.
  SpanIds ids = {};
  telemetry::SpanContext link = {};   // the span of the operation that a poll delivered
  std::optional<Error> failure = {};  // of the operation that a poll delivered
};

using Handler = Result<Answer> (*)(Exchange& exchange);

}  // namespace tuft::api
