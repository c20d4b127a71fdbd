#include "api/dispatcher.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "api/error_mapping.h"
#include "api/media.h"

namespace tuft::api {
namespace {

Admission refuse(Admission admission, Response response, std::string_view reason) {
  admission.refusal = std::move(response);
  admission.reject_reason = reason;
  return admission;
}

Error body_too_large(int64_t body_bytes_max) {
  return {ErrorCode::kPayloadTooLarge,
          "the request body is larger than " + std::to_string(body_bytes_max) +
              " bytes (limits.request_body_bytes_max); send it in smaller requests",
          "request_body"};
}

}  // namespace

Dispatcher::Dispatcher(control::ControlPlane& control, const config::Limits& limits)
    : control_(control), limits_(limits), router_(routes()) {}

Admission Dispatcher::admit(const RequestHead& head) const {
  Admission admission;
  admission.body_bytes_max = limits_.request_body_bytes_max;
  admission.match = router_.match(head.method, head.target);
  if (admission.match.route == nullptr) {
    if (admission.match.allow.empty()) {
      return refuse(std::move(admission), detail_response(404, "there is no such endpoint"), "");
    }
    const std::string_view allow = admission.match.allow;
    Response response = detail_response(405, "this endpoint answers " + std::string(allow) + " only");
    response.allow = allow;
    return refuse(std::move(admission), std::move(response), "");
  }
  const Route& route = admission.match.route->route;
  if (route.access == Access::kKey) {
    Result<control::UserId> user = control_.authenticate(head.headers.api_key);
    if (!user.ok()) return refuse(std::move(admission), error_response(user.error()), "auth");
    admission.user = std::move(user).value();
  }
  if (const Status status = check_content_encoding(head.headers.content_encoding); !status.ok()) {
    return refuse(std::move(admission), error_response(status.error()), "media");
  }
  if (route.accepts == Accepts::kJsonOrProtobuf) {
    const MediaType type = media_type(head.headers.content_type);
    if (type != MediaType::kJson && type != MediaType::kProtobuf) {
      return refuse(std::move(admission),
                    detail_response(415, "Content-Type must be application/x-protobuf or application/json"), "media");
    }
  }
  if (route.body_bytes_max > 0) admission.body_bytes_max = std::min(admission.body_bytes_max, route.body_bytes_max);
  if (head.content_length && *head.content_length > static_cast<uint64_t>(admission.body_bytes_max)) {
    const Error error = body_too_large(admission.body_bytes_max);
    return refuse(std::move(admission), error_response(error), "body_too_large");
  }
  return admission;
}

Result<Answer> Dispatcher::handle(Exchange& exchange, const Route& route) const {
  const int64_t body_bytes_max = route.body_bytes_max > 0
                                     ? std::min(route.body_bytes_max, limits_.request_body_bytes_max)
                                     : limits_.request_body_bytes_max;
  const telemetry::ContextScope scope(exchange.trace);
  try {
    TUFT_ASSIGN(exchange.body,
                decode_body(std::move(exchange.body), exchange.headers.content_encoding, body_bytes_max));
    return route.handler(exchange);
  } catch (const std::exception& exception) {
    return internal_error(std::string("a handler threw: ") + exception.what());
  }
}

Result<Response> Dispatcher::finish(Exchange& exchange, const AwaitFuture& wait,
                                    Result<control::FutureSnapshot> snapshot) const {
  if (!snapshot.ok()) return std::move(snapshot).error();
  try {
    return wait.finish(exchange, *snapshot);
  } catch (const std::exception& exception) {
    return internal_error(std::string("a handler threw: ") + exception.what());
  }
}

}  // namespace tuft::api
