#include "api/routing/http_telemetry.h"

#include <functional>
#include <string>

#include "metrics/http.h"

namespace tuft::api {
namespace {

std::string_view pattern_of(const RegisteredRoute* route) {
  return route == nullptr ? std::string_view("_unmatched") : route->route.pattern;
}

std::string_view format_name(bool protobuf) {
  return protobuf ? "protobuf" : "json";
}

}  // namespace

HttpTelemetry::HttpTelemetry(size_t routes, std::string_view scheme) : scheme_(scheme), routes_(routes + 1) {
  for (const Method method : {Method::kGet, Method::kPost, Method::kPut, Method::kDelete, Method::kOther}) {
    active_[static_cast<size_t>(method)] = metrics::http().server_active_requests.with(
        {{"http.request.method", method_name(method)}, {"url.scheme", scheme_}});
  }
}

telemetry::BoundHistogram& HttpTelemetry::duration_of(RouteSeries& series, const RequestNumbers& numbers) {
  for (auto& [status, histogram] : series.durations) {
    if (status == numbers.status) return histogram;
  }
  const std::string code = std::to_string(numbers.status);
  const telemetry::Label method = {"http.request.method",
                                   method_name(numbers.route == nullptr ? Method::kOther : numbers.method)};
  const telemetry::Label route = {"http.route", pattern_of(numbers.route)};
  const telemetry::Label status = {"http.response.status_code", code};
  const telemetry::Label scheme = {"url.scheme", scheme_};
  const telemetry::Histogram& all = metrics::http().server_request_duration;
  series.durations.emplace_back(numbers.status, numbers.status >= 500
                                                    ? all.with({method, route, status, scheme, {"error.type", code}})
                                                    : all.with({method, route, status, scheme}));
  return series.durations.back().second;
}

bool HttpTelemetry::Allowance::take(Nanos now, int limit) {
  if (now - second >= kSecond) {
    second = now;
    taken = 0;
  }
  return taken++ < limit;
}

bool HttpTelemetry::admits_read(const control::UserId& user, Nanos now) {
  return reads_[std::hash<std::string>()(user.str()) % reads_.size()].take(now, kTracedReadsMax);
}

void HttpTelemetry::record(const RequestNumbers& numbers) {
  RouteSeries& series = numbers.route == nullptr ? routes_.back() : routes_[numbers.route->index];
  duration_of(series, numbers).record(numbers.seconds);
  if (!series.request_size) {
    const telemetry::Label route = {"http.route", pattern_of(numbers.route)};
    series.request_size = metrics::http().server_request_body_size.with({route});
    series.response_size = metrics::http().server_response_body_size.with({route});
  }
  series.request_size->record(static_cast<double>(numbers.request_bytes));
  series.response_size->record(static_cast<double>(numbers.response_bytes));
}

void HttpTelemetry::count_rejected(std::string_view reason) {
  metrics::http().rejected.add(1, {{"reason", reason}});
}

void HttpTelemetry::count_parse_error(std::string_view reason) {
  metrics::http().parse_errors.add(1, {{"reason", reason}});
}

void HttpTelemetry::record_deserialize(const Route& route, bool protobuf, double seconds) {
  metrics::http().deserialize_duration.record(seconds,
                                              {{"http.route", route.pattern}, {"format", format_name(protobuf)}});
}

void HttpTelemetry::record_serialize(const Route& route, bool protobuf, double seconds) {
  metrics::http().serialize_duration.record(seconds,
                                            {{"http.route", route.pattern}, {"format", format_name(protobuf)}});
}

void bind_http_series() {
  for (const std::string_view reason :
       {"auth", "media", "body_too_large", "overloaded", "address_overloaded", "receiving_overloaded",
        "user_receiving_overloaded", "sending_overloaded", "user_sending_overloaded", "work_overloaded",
        "heads_overloaded", "repeated_header", "intake", "standby", "malformed", "header_too_large", "timeout",
        "tls_handshake"}) {
    metrics::http().rejected.with({{"reason", reason}});
  }
  for (const std::string_view reason : {"http", "header", "json", "protobuf"}) {
    metrics::http().parse_errors.with({{"reason", reason}});
  }
  for (const std::string_view reason : {"missing", "unknown", "token"})
    metrics::http().auth_failures.with({{"reason", reason}});
}

}  // namespace tuft::api
