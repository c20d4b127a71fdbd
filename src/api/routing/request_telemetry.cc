#include "api/routing/request_telemetry.h"

#include <algorithm>
#include <charconv>

#include "api/json/error_mapping.h"
#include "api/routing/media.h"
#include "control/types/operation_keys.h"
#include "telemetry/log.h"

namespace tuft::api {
namespace {

const telemetry::Tracer& tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.http");
  return instance;
}

// The ids "<session>:train:<n>" and "<session>:sample:<n>" contain their session.
control::OperationKeys with_session(control::OperationKeys keys) {
  if (!keys.session.empty()) return keys;
  const std::string& id = keys.run.empty() ? keys.sampler.str() : keys.run.str();
  if (const size_t end = id.find(':'); end != std::string::npos) keys.session = control::SessionId(id.substr(0, end));
  return keys;
}

// The SDK describes itself with words and version numbers; other text is dropped.
std::string_view word(std::string_view text) {
  const bool good = text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                             c == '-' || c == '_' || c == '+' || c == ':' || c == ' ';
                    });
  return good ? text : std::string_view();
}

// Free text from a client is recorded with a bounded length and '?' for every byte that is not printable ASCII.
constexpr size_t kFreeTextMax = 256;

std::string printable(std::string_view text) {
  std::string kept(text.substr(0, kFreeTextMax));
  for (char& c : kept) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return kept;
}

}  // namespace

RequestTelemetry::RequestTelemetry(HttpTelemetry& instruments, const Endpoints& endpoints, const RequestHead& head,
                                   const Admission& admission, Nanos start)
    : instruments_(instruments),
      endpoints_(endpoints),
      head_(head),
      route_(admission.match.route),
      user_(admission.user),
      start_(start),
      tracing_(route_ == nullptr ? Tracing::kNever : route_->route.tracing),
      admitted_(is_admitted()) {
  numbers_.method = head.method;
  numbers_.route = route_;
  instruments_.add_active(head.method, 1);
  if (tracing_ == Tracing::kAlways && !user_.empty()) {
    telemetry::SpanOptions options = span_options({});
    options.record = admitted_;
    span_ = tracer().start_span(route_->span_name, options);
  }
  if (admission.refused_key) log_refused_key(*admission.refused_key);
}

// The log record has a span of its own, in which one finds the rest about the request.
void RequestTelemetry::log_refused_key(const RefusedKey& refused) {
  telemetry::SpanOptions options = span_options({});
  options.parent = {};  // a stranger writes into no trace of others
  span_ = tracer().start_span(route_->span_name, options);
  const telemetry::ContextScope scope(span_.context());
  telemetry::log_warning("auth.failed", refused.error.message,
                         {{"client.address", endpoints_.client_address},
                          {"tuft.error.reason", refused.error.reason},
                          {"tuft.left_out", refused.left_out}});
}

bool RequestTelemetry::is_admitted() {
  const bool read = tracing_ == Tracing::kAlways && head_.method == Method::kGet && !user_.empty();
  return !read || !head_.headers.traceparent.empty() || instruments_.admits_read(user_, start_);
}

bool RequestTelemetry::is_told(const Response& response) {
  switch (tracing_) {
    case Tracing::kNever:
      return false;
    case Tracing::kAlways:
      return !user_.empty() && (admitted_ || response.status >= 400);
    case Tracing::kSome:
      return !user_.empty() &&
             (response.status >= 400 || !head_.headers.traceparent.empty() || instruments_.admits(start_));
    case Tracing::kWhenDelivered:
      break;
  }
  return !user_.empty() ? response.status != 408 : response.status < 400;
}

RequestTelemetry::~RequestTelemetry() {
  instruments_.add_active(head_.method, -1);
  if (!answered_ && span_.recording()) {
    describe(nullptr, nullptr);
    span_.set_attribute("error.type", "client_gone");
  }
}

telemetry::SpanOptions RequestTelemetry::span_options(const telemetry::SpanContext& link) const {
  telemetry::SpanOptions options;
  options.parent = telemetry::extract([&](std::string_view key) -> std::string_view {
    if (key == "traceparent") return head_.headers.traceparent;
    if (key == "tracestate") return head_.headers.tracestate;
    return key == "baggage" ? head_.headers.baggage : std::string_view();
  });
  options.kind = telemetry::SpanKind::kServer;
  options.link = link;
  options.start = start_;
  return options;
}

// Polls, frequent requests, and GETs that fail in a flood get their span only here, because most of them have none.
void RequestTelemetry::describe_late(const Exchange* exchange) {
  span_ = tracer().start_span(route_->span_name, span_options(exchange ? exchange->link : telemetry::SpanContext{}));
  int64_t iteration = 0;
  const std::string_view text = head_.headers.poll_iteration;
  if (std::from_chars(text.data(), text.data() + text.size(), iteration).ec == std::errc()) {
    span_.set_attribute("tuft.poll.iteration", iteration);
  }
}

void RequestTelemetry::describe(const Exchange* exchange, const Error* error) {
  const std::string path = printable(head_.target.substr(0, head_.target.find('?')));
  span_.set_attributes({{"http.request.method", head_.is_head ? "HEAD" : method_name(head_.method)},
                        {"url.path", path},
                        {"url.scheme", endpoints_.scheme},
                        {"server.address", endpoints_.server_address},
                        {"server.port", endpoints_.server_port},
                        {"client.address", endpoints_.client_address},
                        {"client.port", endpoints_.client_port},
                        {"network.protocol.version", head_.http_version},
                        {"http.request.body.size", numbers_.request_bytes}});
  if (route_ != nullptr) span_.set_attribute("http.route", route_->route.pattern);
  if (!user_.empty()) span_.set_attribute("tuft.user", user_.str());
  if (!head_.headers.user_agent.empty())
    span_.set_attribute("user_agent.original", printable(head_.headers.user_agent));
  const std::string_view client_method = word(head_.headers.client_method);
  if (!client_method.empty()) span_.set_attribute("tuft.client.method", client_method);
  if (!answered_) return;
  span_.set_attribute("http.response.status_code", numbers_.status);
  if (!streams_) span_.set_attribute("http.response.body.size", numbers_.response_bytes);
  if (exchange != nullptr) {
    control::OperationKeys keys = with_session(exchange->keys);
    span_.set_attributes(control::KeyAttributes(keys));
    share_keys(*exchange, std::move(keys));
    if (exchange->failure) span_.set_attribute("tuft.future.error", error_code_name(exchange->failure->code));
    describe_client(exchange->describes_client);
  }
  if (numbers_.status < 500) return;
  if (error != nullptr) span_.record_error(*error);
  span_.set_attribute("error.type", std::to_string(numbers_.status));
}

// An operation has kept its keys already. A request without one takes no place among the sets of keys, of which a
// number is kept for all users: only its own log record lies below its span.
void RequestTelemetry::share_keys(const Exchange& exchange, control::OperationKeys keys) {
  const telemetry::SpanContext& work = exchange.operation.keys != 0 ? exchange.operation : exchange.link;
  if (work.keys != 0) {
    span_.share(work);
  } else {
    logged_keys_ = std::move(keys);
  }
}

// The SDK names its version with each request, the rest with some.
void RequestTelemetry::describe_client(bool whole) {
  const RequestHeaders& headers = head_.headers;
  const std::string_view version = word(headers.client_version.empty() ? headers.sdk_version : headers.client_version);
  const bool says_version = !headers.client_version.empty() || whole;
  if (says_version && !version.empty()) span_.set_attribute("tuft.client.sdk_version", version);
  if (!whole) return;
  const telemetry::Attribute said[] = {{"tuft.client.language", word(headers.sdk_language)},
                                       {"tuft.client.os", word(headers.sdk_os)},
                                       {"tuft.client.arch", word(headers.sdk_arch)},
                                       {"tuft.client.runtime", word(headers.sdk_runtime)},
                                       {"tuft.client.runtime_version", word(headers.sdk_runtime_version)}};
  for (const telemetry::Attribute& attribute : said) {
    if (!attribute.value.as_string().empty()) span_.set_attribute(attribute.key, attribute.value);
  }
}

void RequestTelemetry::record_coding(const Exchange& exchange, const Response& response) const {
  if (exchange.read_at > exchange.handed_at) {
    const bool protobuf = media_type(exchange.headers.content_type) == MediaType::kProtobuf;
    HttpTelemetry::record_deserialize(route_->route, protobuf, to_seconds(exchange.read_at - exchange.handed_at));
  }
  if (exchange.known_at != 0 && exchange.written_at >= exchange.known_at) {
    const bool protobuf = response.content_type == kProtobufType;
    HttpTelemetry::record_serialize(route_->route, protobuf, to_seconds(exchange.written_at - exchange.known_at));
  }
}

void RequestTelemetry::answered(const Exchange* exchange, const Response& response, const Error* error) {
  answered_ = true;
  numbers_.status = response.status;
  numbers_.response_bytes = response.bytes().size();
  streams_ = response.stream != nullptr;
  if (exchange != nullptr && route_ != nullptr) record_coding(*exchange, response);
  if (error != nullptr && error->reason == kMalformedRequest) HttpTelemetry::count_parse_error("json");
  if (error != nullptr && error->reason == kInvalidProtobuf) HttpTelemetry::count_parse_error("protobuf");
  told_ = is_told(response);
  if (told_ && (tracing_ != Tracing::kAlways || !admitted_)) describe_late(exchange);
  if (error != nullptr && response.status >= 500) {
    const telemetry::ContextScope scope(span_.context());
    const std::string_view route = route_ ? route_->route.pattern : std::string_view("_unmatched");
    telemetry::log_error("http.request.failed", error->message,
                         {{"http.route", route},
                          {"http.response.status_code", response.status},
                          {"error.type", error_code_name(error->code)}});
  }
  if (span_.recording()) describe(exchange, error);
}

void RequestTelemetry::finish() {
  const Nanos now = system_clock().monotonic();
  numbers_.seconds = to_seconds(now - start_);
  {
    // Exemplars lead from the histograms to this span.
    const telemetry::ContextScope scope(span_.context());
    instruments_.record(numbers_);
  }
  if (streams_ && span_.recording()) {
    span_.set_attribute("http.response.body.size", numbers_.response_bytes);
    if (!cut_.empty()) span_.set_attribute("error.type", cut_);
  }
  log_access();
  span_.end(now);
}

void RequestTelemetry::log_access() const {
  if (!told_) return;
  const telemetry::ContextScope scope(span_.context());
  telemetry::log_debug("http.access", "request answered",
                       control::KeyAttributes(logged_keys_, {{"http.request.method", method_name(head_.method)},
                                                             {"http.route", route_ ? route_->route.pattern
                                                                                   : std::string_view("_unmatched")},
                                                             {"http.response.status_code", numbers_.status},
                                                             {"http.request.body.size", numbers_.request_bytes},
                                                             {"http.response.body.size", numbers_.response_bytes},
                                                             {"client.address", endpoints_.client_address},
                                                             {"tuft.seconds", numbers_.seconds}}));
}

}  // namespace tuft::api
