// The metrics of the HTTP server.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "api/routing/router.h"
#include "base/clock.h"
#include "control/types/types.h"
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
  bool admits(Nanos now) { return some_.take(now, kTracedMax); }
  static constexpr int kTracedMax = 50;
  // The same for a successful GET of a user: at most kTracedReadsMax. A few users may share a number.
  bool admits_read(const control::UserId& user, Nanos now);
  static constexpr int kTracedReadsMax = 500;
  // `reason` is one of: auth, media, body_too_large, overloaded, address_overloaded, receiving_overloaded,
  // user_receiving_overloaded, sending_overloaded, user_sending_overloaded, work_overloaded, heads_overloaded, intake,
  // repeated_header, malformed, header_too_large, timeout, tls_handshake.
  static void count_rejected(std::string_view reason);
  // `reason` is one of: http, header, json, protobuf.
  static void count_parse_error(std::string_view reason);
  static void record_deserialize(const Route& route, bool protobuf, double seconds);
  static void record_serialize(const Route& route, bool protobuf, double seconds);

 private:
  // Counts what was taken in the current second.
  struct Allowance {
    bool take(Nanos now, int limit);
    Nanos second = 0;
    int taken = 0;
  };
  struct RouteSeries {
    std::vector<std::pair<int, telemetry::BoundHistogram>> durations;  // by status
    std::optional<telemetry::BoundHistogram> request_size, response_size;
  };
  telemetry::BoundHistogram& duration_of(RouteSeries& series, const RequestNumbers& numbers);

  const std::string_view scheme_;
  std::vector<RouteSeries> routes_;  // by RegisteredRoute::index; the last is for unmatched requests
  telemetry::BoundCounter active_[5];
  Allowance some_;
  std::array<Allowance, 64> reads_;  // by the hash of the user
};

// Binds the series of all rejection and error reasons, so that dashboards show 0 before the first event.
void bind_http_series();

}  // namespace tuft::api
