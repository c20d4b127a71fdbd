// One HTTP request and its answer, as handlers see them: no sockets, no HTTP library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_plane.h"
#include "telemetry/context.h"

namespace tuft::openai {
class Service;
}

namespace tuft::api {

class MetricsPage;

inline constexpr std::string_view kJsonType = "application/json";
// How a route tells errors: {"detail": "..."}, or as OpenAI's clients read them.
enum class ErrorShape : uint8_t { kDetail, kOpenAi };

inline constexpr std::string_view kProtobufType = "application/x-protobuf";

// A body that comes in pieces: a file, or events as they happen. Destroyed when it is sent or the peer is gone.
class BodyStream {
 public:
  virtual ~BodyStream() = default;
  // Bytes in all, for Content-Length; none: not known, sent chunked.
  virtual std::optional<int64_t> length() const { return std::nullopt; }
  // The next piece; empty: the end. An error cuts the connection, so that the peer sees that something is missing. One
  // call at a time; `done` is called once, on any thread, not after this is destroyed.
  virtual void next(std::function<void(Result<std::string>)> done) = 0;
};

struct Response {
  int status = 200;
  std::string_view content_type = kJsonType;  // static
  std::string body;
  // Where set, the body is this instead: bytes that a finished future owns, sent without a copy.
  std::shared_ptr<const std::string> shared_body;
  std::shared_ptr<BodyStream> stream;  // where set, the body is what it gives
  // More headers, e.g. Location. Names are static; a value with a control character turns the answer into a 500.
  std::vector<std::pair<std::string_view, std::string>> headers;
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

// The answer comes later: `start` is called once, on the connection's thread, and calls `done` once, on any thread;
// what comes too late is dropped. `start` and what it holds are destroyed on the connection's thread once nobody waits
// any more - answered, out of time, or the client has gone -, so that it can hold what ends the work.
struct AwaitResponse {
  std::function<void(std::function<void(Result<Response>)> done)> start;
  Nanos limit = 50 * kSecond;  // then 503; under the SDK's 60 s
};

using Answer = std::variant<Response, AwaitFuture, AwaitResponse>;

inline Answer json_answer(std::string body) {
  return json_response(std::move(body));
}

// The headers that somebody reads; empty where absent. Views into the connection's buffers: valid during the exchange.
struct RequestHeaders {
  std::string_view accept;
  std::string_view api_key;
  std::string_view authorization;
  std::string_view content_encoding;
  std::string_view content_type;
  std::string_view forwarded;  // what a proxy adds: Forwarded, Via, X-Forwarded-*, X-Real-IP
  std::string_view forwarded_host, forwarded_proto;
  std::string_view host;
  std::string_view idempotency_key;
  std::string_view user_agent;
  // of polls: how often before, and the seconds that the client saw its submission take
  std::string_view poll_iteration, submission_seconds;
  // W3C
  std::string_view traceparent, tracestate, baggage;
  // X-Stainless-*: who the SDK says it is
  std::string_view sdk_language, sdk_version, sdk_os, sdk_arch, sdk_runtime, sdk_runtime_version;
};

// Confined to the connection's thread.
struct Exchange {
  control::ControlPlane& control;
  const config::Limits& limits;
  std::shared_ptr<MetricsPage> metrics_page = {};
  openai::Service* openai = nullptr;

  RequestHeaders headers = {};
  std::vector<std::string> path_parameters = {};  // the "{...}" of the route in order, percent-decoded
  std::string_view query = {};                    // what follows the '?', as sent
  std::string body = {};                          // without its content encoding
  control::UserId user = {};                      // empty on open routes
  telemetry::SpanContext trace = {};
  std::string_view scheme = "http";  // static

  // Told by handlers, for telemetry.
  control::OperationKeys keys = {};   // what the request is about
  bool describes_client = false;      // its span says which SDK asks
  Nanos handed_at = 0;                // reading the body begins
  Nanos read_at = 0;                  // the body is understood
  Nanos known_at = 0;                 // what to answer is known; writing it begins
  Nanos written_at = 0;               // it is written down
  telemetry::SpanContext link = {};   // the span of the operation that a poll delivered
  std::optional<Error> failure = {};  // of the operation that a poll delivered
};

// Ends the reading of a body, well or not; for tuft.http.deserialize.duration.
inline Status body_read(Exchange& exchange, Status status) {
  exchange.read_at = system_clock().monotonic();
  return status;
}

using Handler = Result<Answer> (*)(Exchange& exchange);

}  // namespace tuft::api
