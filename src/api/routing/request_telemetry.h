// The telemetry of one request: the server span, the access log and the http.server.* metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "api/routing/dispatcher.h"
#include "api/routing/http_telemetry.h"
#include "api/routing/router.h"
#include "telemetry/trace.h"

namespace tuft::api {

// The two endpoints of a connection.
struct Endpoints {
  std::string server_address;
  uint16_t server_port = 0;
  std::string client_address;
  uint16_t client_port = 0;
  bool client_is_local = false;  // a loopback address
  uint64_t client_group = 0;     // the IPv4 address, or the /64 prefix of an IPv6 address
  std::string_view scheme = "http";
};

// Covers a request from its head to its answer. Requests of strangers, whose number nothing limits, are only counted: a
// span or log line for each would push the spans of users out of queues and archives. One refused key a second has
// both. The references that it gets must outlive it. If it is destroyed before answered(), the client has disconnected.
// Confined to the connection's thread.
class RequestTelemetry {
 public:
  RequestTelemetry(HttpTelemetry& instruments, const Endpoints& endpoints, const RequestHead& head,
                   const Admission& admission, Nanos start);
  ~RequestTelemetry();
  RequestTelemetry(const RequestTelemetry&) = delete;
  RequestTelemetry& operator=(const RequestTelemetry&) = delete;

  // Returns the context of the server span.
  const telemetry::SpanContext& trace() const { return span_.context(); }

  void set_request_bytes(size_t bytes) { numbers_.request_bytes = bytes; }
  // Sets the number of bytes of a streamed body that were sent so far.
  void set_response_bytes(size_t bytes) { numbers_.response_bytes = bytes; }
  // Notes that the body was not sent completely. `reason` has static storage.
  void cut(std::string_view reason) { cut_ = cut_.empty() ? reason : cut_; }
  // Must be called once, before the answer is written. `error` is the cause of the answer and may be null.
  void answered(const Exchange* exchange, const Response& response, const Error* error);
  // Must be called when the answer has been written.
  void finish();

 private:
  bool is_admitted();
  void log_refused_key(const RefusedKey& refused);
  telemetry::SpanOptions span_options(const telemetry::SpanContext& link) const;
  void describe_late(const Exchange* exchange);
  void describe(const Exchange* exchange, const Error* error);
  void share_keys(const Exchange& exchange, control::OperationKeys keys);
  void describe_client(bool whole);
  void record_coding(const Exchange& exchange, const Response& response) const;
  // Called once, because a request that HttpTelemetry::admits() counts against its limit.
  bool is_told(const Response& response);
  void log_access() const;

  HttpTelemetry& instruments_;
  const Endpoints& endpoints_;
  const RequestHead& head_;
  const RegisteredRoute* route_;
  const control::UserId user_;  // empty: a stranger
  const Nanos start_;
  const Tracing tracing_;
  const bool admitted_;  // false: only if it fails it has a span
  RequestNumbers numbers_;
  bool answered_ = false;
  bool told_ = false;  // the request has a span and a log line
  bool streams_ = false;
  std::string_view cut_;
  telemetry::Span span_;
  control::OperationKeys logged_keys_;  // of a request without an operation
};

}  // namespace tuft::api
