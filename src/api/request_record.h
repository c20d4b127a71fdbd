// What telemetry keeps of one request: the server span and the http.server.* metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/dispatcher.h"
#include "api/exchange.h"
#include "api/router.h"
#include "telemetry/metrics.h"
#include "telemetry/trace.h"

namespace tuft::api {

// Series of http.server.*, found once per route and status. Confined to one I/O thread.
class HttpInstruments {
 public:
  explicit HttpInstruments(size_t routes) : durations_(routes + 1) {}

  void add_active(Method method, int64_t by);
  // `route` null: a request that no route took.
  void record_duration(Method method, const RegisteredRoute* route, int status, double seconds);
  // `reason` out of: auth, media, body_too_large, overloaded, shutdown, malformed, header_too_large, timeout.
  static void count_rejected(std::string_view reason);

 private:
  std::vector<std::vector<std::pair<int, telemetry::BoundHistogram>>> durations_;
  telemetry::BoundCounter active_[3];
  bool active_bound_[3] = {};
};

// The two ends of a connection.
struct Endpoints {
  std::string server_address;
  uint16_t server_port = 0;
  std::string client_address;
};

// From the head of a request to its answer. Confined to the connection's thread; outlived by what it refers to.
class RequestRecord {
 public:
  RequestRecord(HttpInstruments& instruments, const Endpoints& endpoints, const RequestHead& head,
                const RegisteredRoute* route, Nanos start);
  ~RequestRecord();
  RequestRecord(const RequestRecord&) = delete;
  RequestRecord& operator=(const RequestRecord&) = delete;

  // Of the server span, for the control plane.
  const telemetry::SpanContext& trace() const { return span_.context(); }

  // Once, when the answer is known. `error`: what a status from 500 on came from; may be null.
  void finish(const Exchange* exchange, int status, const Error* error);

 private:
  telemetry::SpanOptions span_options(const telemetry::SpanContext& link) const;
  void set_ids(const SpanIds& ids);

  HttpInstruments& instruments_;
  const Endpoints& endpoints_;
  const RequestHead& head_;
  const RegisteredRoute* route_;
  const Nanos start_;
  Tracing tracing_;
  telemetry::Span span_;
};

}  // namespace tuft::api
