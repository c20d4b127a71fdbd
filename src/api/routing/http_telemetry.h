// The metrics of the HTTP server.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "api/routing/router.h"
#include "base/clock.h"
#include "telemetry/instrument.h"

namespace tuft::api {

// The measurements of one request, complete when its answer has been written.
struct RequestNumbers {
  Method method = Method::kOther;
  const RegisteredRoute* route = nullptr;  // null: no route matched
  int status = 0;
  double seconds = 0;
  size_t request_bytes = 0;  // body size as received, before decoding
  size_t response_bytes = 0;
};

// Updates http.server.* and tuft.http.*. Series are bound once per route and status. Confined to one I/O thread; the
// static functions are thread-safe.
class HttpTelemetry {
 public:
  // `routes` is the number of routes; `scheme` is http or https.
  HttpTelemetry(size_t routes, std::string_view scheme);

  void add_active(Method method, int64_t by) { active_[static_cast<size_t>(method)].add(by); }
  void record(const RequestNumbers& numbers);
  // Returns whether one more request of a route with Tracing::kSome gets a span: at most kTracedMax in each second.
  bool admits(Nanos now);
  static constexpr int kTracedMax = 50;
  // `reason` is one of: auth, media, body_too_large, overloaded, address_overloaded, receiving_overloaded,
  // user_receiving_overloaded, sending_overloaded, user_sending_overloaded, work_overloaded, heads_overloaded,
  // repeated_header, malformed, header_too_large, timeout, tls_handshake.
  static void count_rejected(std::string_view reason);
  // `reason` is one of: http, header, json, protobuf.
  static void count_parse_error(std::string_view reason);
  static void record_deserialize(const Route& route, bool protobuf, double seconds);
  static void record_serialize(const Route& route, bool protobuf, double seconds);

 private:
  struct RouteSeries {
    std::vector<std::pair<int, telemetry::BoundHistogram>> durations;  // by status
    std::optional<telemetry::BoundHistogram> request_size, response_size;
  };
  telemetry::BoundHistogram& duration_of(RouteSeries& series, const RequestNumbers& numbers);

  const std::string_view scheme_;
  std::vector<RouteSeries> routes_;  // by RegisteredRoute::index; the last is for unmatched requests
  telemetry::BoundCounter active_[5];
  Nanos second_ = 0;  // the start of the second that traced_ counts
  int traced_ = 0;
};

// Binds the series of all rejection and error reasons, so that dashboards show 0 before the first event.
void bind_http_series();

}  // namespace tuft::api
