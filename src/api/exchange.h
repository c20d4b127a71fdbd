// An HTTP request and its answer as handlers see them, independent of sockets and of the HTTP library.
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

#include "base/byte_account.h"
#include "base/clock.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_plane.h"
#include "telemetry/context.h"
#include "telemetry/trace.h"

namespace tuft::openai {
class Service;
}
namespace tuft::control {
class WorkPool;
}

namespace tuft::api {

class ConsoleSessions;
class MetricsPage;

// The form of an error's body: {"detail": "..."} (kDetail), or OpenAI's {"error": {...}} (kOpenAi).
enum class ErrorShape : uint8_t { kDetail, kOpenAi };

inline constexpr std::string_view kJsonType = "application/json";
inline constexpr std::string_view kProtobufType = "application/x-protobuf";

// A response body that is produced in pieces, such as a file or server-sent events. It is destroyed when it has been
// sent or when the client has disconnected.
class BodyStream {
 public:
  virtual ~BodyStream() = default;
  // Returns the size of the body in bytes, or nothing if it is not known; then the body is sent chunked.
  virtual std::optional<int64_t> length() const { return std::nullopt; }
  // Returns the memory of the pieces that may exist at a time, if they are large.
  virtual int64_t buffer_bytes() const { return 0; }
  // Produces the next piece; an empty piece ends the body. An error closes the connection, so that the client notices
  // the missing rest. The caller waits for `done` before it calls next() again. `done` is called exactly once, on any
  // thread; a call after the stream has been destroyed has no effect.
  virtual void next(std::function<void(Result<std::string>)> done) = 0;
};

struct Response {
  int status = 200;
  std::string_view content_type = kJsonType;  // static storage
  std::string body;
  // If set, it replaces `body`: bytes that a finished future owns, sent without a copy.
  std::shared_ptr<const std::string> shared_body;
  std::shared_ptr<BodyStream> stream;  // if set, it replaces both
  // Further headers, e.g. Location. Names have static storage. A value with a control character makes the answer a 500.
  std::vector<std::pair<std::string_view, std::string>> headers;
  std::string_view allow;  // the Allow header of a 405; static storage
  bool close = false;      // close the connection after this response

  std::string_view bytes() const { return shared_body ? std::string_view(*shared_body) : std::string_view(body); }
};

inline Response json_response(std::string body, int status = 200) {
  Response response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

struct Exchange;

// The request waits until the future finishes or the long poll times out; then `finish` makes the response.
struct AwaitFuture {
  control::RequestId request;
  Result<Response> (*finish)(Exchange& exchange, const control::FutureSnapshot& snapshot) = nullptr;
};

// The request waits for a response that is made elsewhere. `start` is called once, on the connection's thread, and
// calls `done` once, on any thread; a late call is ignored. `start` is destroyed on the connection's thread when the
// request has been answered, has timed out or its client has disconnected, so an object that it holds can cancel the
// work.
struct AwaitResponse {
  std::function<void(std::function<void(Result<Response>)> done)> start;
  Nanos limit = 50 * kSecond;  // then the answer is 503; below the SDK's timeout of 60 s
  // Makes a long poll of it: the answer when the time of a poll or `limit` is over, or the server stops.
  std::function<Response()> at_end = {};
};

using Answer = std::variant<Response, AwaitFuture, AwaitResponse>;

inline Answer json_answer(std::string body) {
  return json_response(std::move(body));
}

// The request headers that the server uses; absent ones are empty. They are views into the connection's buffers and
// valid during the exchange.
struct RequestHeaders {
  std::string_view accept;
  std::string_view accept_encoding;
  std::string_view api_key;
  std::string_view authorization;
  std::string_view content_encoding;
  std::string_view content_type;
  std::string_view cookie;
  std::string_view forwarded;  // not empty if a proxy added Forwarded, Via, X-Forwarded-* or X-Real-IP
  std::string_view forwarded_host, forwarded_proto;
  std::string_view host;
  std::string_view idempotency_key;
  std::string_view if_none_match;
  std::string_view origin, fetch_site;  // of a browser: Origin and Sec-Fetch-Site
  std::string_view user_agent;
  std::string_view weights_access_token;  // X-Tinker-Weights-Access-Token
  std::string_view tuft_console;          // X-Tuft-Console: the web console sends it with each request
  // MCP-Protocol-Version, Mcp-Method, Mcp-Name: of a request of the Model Context Protocol.
  std::string_view mcp_version, mcp_method, mcp_name;
  // Sent with polls: the number of earlier polls, and the duration of the submission in seconds as the client saw it.
  std::string_view poll_iteration, submission_seconds;
  // W3C trace context.
  std::string_view traceparent, tracestate, baggage;
  // X-SDK-*: the version of the SDK, and the method that its user called: "TrainingClient.forward_backward".
  std::string_view client_version, client_method;
  // X-Stainless-*: the SDK's description of itself.
  std::string_view sdk_language, sdk_version, sdk_os, sdk_arch, sdk_runtime, sdk_runtime_version;
};

// One request while it is handled. Used by one thread at a time: the connection's, or a work thread.
struct Exchange {
  control::ControlPlane& control;
  const config::Limits& limits;
  bool stands_by = false;  // see routing/standby.h
  std::shared_ptr<MetricsPage> metrics_page = {};
  openai::Service* openai = nullptr;
  control::WorkPool* work = nullptr;
  ConsoleSessions* console = nullptr;  // null: there is no console

  RequestHeaders headers = {};
  std::vector<std::string> path_parameters = {};  // values of the route's "{...}" in order, percent-decoded
  std::string_view query = {};                    // the text after '?', still encoded
  std::string body = {};                          // content encoding removed
  std::vector<ByteAccount::Hold> memory = {};     // see hold_memory()
  control::UserId user = {};                      // empty on open routes
  telemetry::SpanContext trace = {};              // of the server span
  std::string_view scheme = "http";               // "http" or "https"; static storage
  std::string_view public_url = {};               // of the configuration; empty: none

  // Handlers and the dispatcher set the following fields for telemetry.
  control::OperationKeys keys = {};       // ids of the objects that the request names or creates
  bool describes_client = false;          // the span gets the attributes of the SDK
  Nanos handed_at = 0;                    // the handler was called
  Nanos read_at = 0;                      // the body was decoded
  Nanos known_at = 0;                     // the result was available
  Nanos written_at = 0;                   // the result was encoded
  telemetry::SpanContext link = {};       // span of the operation whose result a poll delivered
  telemetry::SpanContext operation = {};  // of what the request submitted; the server span shares its keys
  telemetry::SharedKeys held_keys = {};   // of an operation that has no span to hold them
  std::optional<Error> failure = {};      // error of that operation
};

// Records the end of decoding (for tuft.http.deserialize.duration) and returns `status`.
inline Status body_read(Exchange& exchange, Status status) {
  exchange.read_at = system_clock().monotonic();
  return status;
}

// Charges memory that decoding takes to the user of the request (limits.queued_bytes_per_user_max), until the request
// has been handled or the handler clears exchange.memory. To be called before the memory is used.
inline Status hold_memory(Exchange& exchange, int64_t bytes) {
  TUFT_ASSIGN(ByteAccount::Hold hold, exchange.control.generation().hold_memory(exchange.user, bytes));
  exchange.memory.push_back(std::move(hold));
  return {};
}

using Handler = Result<Answer> (*)(Exchange& exchange);

}  // namespace tuft::api
