// The series of the HTTP edge. Part of them is bound at start, so that dashboards see 0 and not a gap.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "api/router.h"
#include "telemetry/metrics.h"

namespace tuft::api {

// What is known of a request when its answer has been written.
struct RequestNumbers {
  Method method = Method::kOther;
  const RegisteredRoute* route = nullptr;  // null: a request that no route took
  int status = 0;
  double seconds = 0;
  size_t request_bytes = 0;  // of the body, as it came over the wire
  size_t response_bytes = 0;
};

// Series of http.server.*, found once per route and status. Confined to one I/O thread.
class HttpInstruments {
 public:
  // `scheme`: http or https.
  HttpInstruments(size_t routes, std::string_view scheme);

  void add_active(Method method, int64_t by) { active_[static_cast<size_t>(method)].add(by); }
  void record(const RequestNumbers& numbers);
  // `reason` out of: auth, media, body_too_large, overloaded, address_overloaded, receiving_overloaded,
  // user_receiving_overloaded, malformed, header_too_large, timeout, tls_handshake.
  static void count_rejected(std::string_view reason);
  // `reason` out of: http, header, json, protobuf.
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
  std::vector<RouteSeries> routes_;  // by index; the last one is of requests that no route took
  telemetry::BoundCounter active_[5];
};

// Makes the series that are asked for before anything has happened.
void bind_http_series();

}  // namespace tuft::api
