#include "api/request_record.h"

#include <charconv>

#include "telemetry/log.h"

namespace tuft::api {
namespace {

const telemetry::Tracer& tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.http");
  return instance;
}

telemetry::Name unrouted_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kPost:
      return "POST";
    case Method::kOther:
      return "HTTP";
  }
  return "HTTP";
}

}  // namespace

void HttpInstruments::add_active(Method method, int64_t by) {
  const auto index = static_cast<size_t>(method);
  if (!active_bound_[index]) {
    active_bound_[index] = true;
    active_[index] = telemetry::get_metrics().http_server_active_requests.with(
        {{"http.request.method", method_name(method)}, {"url.scheme", "http"}});
  }
  active_[index].add(by);
}

void HttpInstruments::record_duration(Method method, const RegisteredRoute* route, int status, double seconds) {
  auto& known = durations_[route == nullptr ? durations_.size() - 1 : route->index];
  for (const auto& [code, histogram] : known) {
    if (code == status) return histogram.record(seconds);
  }
  const std::string code = std::to_string(status);
  const std::string_view pattern = route == nullptr ? std::string_view("_unmatched") : route->route.pattern;
  const telemetry::BoundHistogram histogram = telemetry::get_metrics().http_server_request_duration.with(
      {{"http.request.method", method_name(route == nullptr ? Method::kOther : method)},
       {"http.route", pattern},
       {"http.response.status_code", code},
       {"url.scheme", "http"}});
  known.emplace_back(status, histogram);
  histogram.record(seconds);
}

void HttpInstruments::count_rejected(std::string_view reason) {
  telemetry::get_metrics().http_rejected.add(1, {{"reason", reason}});
}

RequestRecord::RequestRecord(HttpInstruments& instruments, const Endpoints& endpoints, const RequestHead& head,
                             const RegisteredRoute* route, Nanos start)
    : instruments_(instruments),
      endpoints_(endpoints),
      head_(head),
      route_(route),
      start_(start),
      tracing_(route == nullptr ? Tracing::kAlways : route->route.tracing) {
  instruments_.add_active(head.method, 1);
  if (tracing_ == Tracing::kAlways) {
    span_ = tracer().start_span(route_ ? route_->span_name : unrouted_name(head_.method), span_options({}));
  }
}

RequestRecord::~RequestRecord() {
  instruments_.add_active(head_.method, -1);
}

telemetry::SpanOptions RequestRecord::span_options(const telemetry::SpanContext& link) const {
  telemetry::SpanOptions options;
  options.parent = telemetry::extract([&](std::string_view) { return head_.headers.traceparent; });
  options.kind = telemetry::SpanKind::kServer;
  options.link = link;
  options.start = start_;
  return options;
}

void RequestRecord::set_ids(const SpanIds& ids) {
  if (!ids.request.empty()) span_.set_attribute("tuft.request_id", ids.request);
  if (!ids.session.empty()) span_.set_attribute("tuft.session_id", ids.session);
  if (!ids.training_run.empty()) span_.set_attribute("tuft.training_run_id", ids.training_run);
  if (!ids.sampling_session.empty()) span_.set_attribute("tuft.sampling_session_id", ids.sampling_session);
}

void RequestRecord::finish(const Exchange* exchange, int status, const Error* error) {
  const Nanos now = system_clock().monotonic();
  instruments_.record_duration(head_.method, route_, status, to_seconds(now - start_));
  if (tracing_ == Tracing::kWhenDelivered && status != 408) {
    span_ = tracer().start_span(route_->span_name, span_options(exchange ? exchange->link : telemetry::SpanContext{}));
    int64_t iteration = 0;
    const std::string_view text = head_.headers.poll_iteration;
    if (std::from_chars(text.data(), text.data() + text.size(), iteration).ec == std::errc()) {
      span_.set_attribute("tuft.poll.iteration", iteration);
    }
  }
  if (error != nullptr && status >= 500) {
    const telemetry::ContextScope scope(span_.context());
    const std::string_view route = route_ ? route_->route.pattern : std::string_view("_unmatched");
    telemetry::log_error(
        "http.request.failed", error->message,
        {{"http.route", route}, {"http.response.status_code", status}, {"error.type", error_code_name(error->code)}});
  }
  if (!span_.recording()) return;
  span_.set_attributes({{"http.request.method", method_name(head_.method)},
                        {"url.path", head_.target.substr(0, head_.target.find('?'))},
                        {"url.scheme", "http"},
                        {"http.response.status_code", status},
                        {"server.address", endpoints_.server_address},
                        {"server.port", endpoints_.server_port},
                        {"client.address", endpoints_.client_address}});
  if (route_ != nullptr) span_.set_attribute("http.route", route_->route.pattern);
  if (!head_.headers.user_agent.empty()) span_.set_attribute("user_agent.original", head_.headers.user_agent);
  if (exchange != nullptr) {
    set_ids(exchange->ids);
    if (exchange->failure) span_.set_attribute("tuft.future.error", error_code_name(exchange->failure->code));
  }
  if (error != nullptr && status >= 500) span_.record_error(*error);
  span_.end(now);
}

}  // namespace tuft::api
