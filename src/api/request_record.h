// What telemetry keeps of one request: the server span, the access log and the http.server.* metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/dispatcher.h"
#include "api/exchange.h"
#include "api/http_metrics.h"
#include "api/router.h"
#include "telemetry/trace.h"

namespace tuft::api {

// The two ends of a connection.
struct Endpoints {
  std::string server_address;
  uint16_t server_port = 0;
  std::string client_address;
  uint16_t client_port = 0;
  bool client_is_local = false;  // a loopback address
  uint64_t client_group = 0;     // the IPv4 address, or the IPv6 network of 64 bits: who has one has them all
  std::string_view scheme = "http";
};

// From the head of a request to its answer. Confined to the connection's thread; outlived by what it refers to. A
// request whose client went away before there was an answer ends with the record.
class RequestRecord {
 public:
  RequestRecord(HttpInstruments& instruments, const Endpoints& endpoints, const RequestHead& head,
                const RegisteredRoute* route, Nanos start);
  ~RequestRecord();
  RequestRecord(const RequestRecord&) = delete;
  RequestRecord& operator=(const RequestRecord&) = delete;

  // Of the server span, for the control plane.
  const telemetry::SpanContext& trace() const { return span_.context(); }

  void set_request_bytes(size_t bytes) { numbers_.request_bytes = bytes; }
  // Of a body that is sent as it comes: so far.
  void set_response_bytes(size_t bytes) { numbers_.response_bytes = bytes; }
  // It did not go out whole. `reason` is static.
  void cut(std::string_view reason) { cut_ = cut_.empty() ? reason : cut_; }
  // Once, when the answer is known, before it is written. `error`: what it came from; may be null.
  void answered(const Exchange* exchange, const Response& response, const Error* error);
  // Once the answer is written.
  void finish();

 private:
  telemetry::SpanOptions span_options(const telemetry::SpanContext& link) const;
  void describe_poll(const Exchange* exchange);
  void describe(const Exchange* exchange, const Error* error);
  void describe_client();
  void record_coding(const Exchange& exchange, const Response& response) const;
  void log_access() const;

  HttpInstruments& instruments_;
  const Endpoints& endpoints_;
  const RequestHead& head_;
  const RegisteredRoute* route_;
  const Nanos start_;
  Tracing tracing_;
  RequestNumbers numbers_;
  bool answered_ = false;
  bool streams_ = false;
  std::string_view cut_;
  telemetry::Span span_;
};

}  // namespace tuft::api
