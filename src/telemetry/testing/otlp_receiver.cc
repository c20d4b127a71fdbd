#include "telemetry/testing/otlp_receiver.h"

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <utility>

#include <google/protobuf/any.pb.h>
#include <google/protobuf/duration.pb.h>
#include <grpcpp/grpcpp.h>
#include <opentelemetry/proto/collector/logs/v1/logs_service.grpc.pb.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.grpc.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h>

#include "base/check.h"

namespace tuft::telemetry::testing {
namespace {

namespace proto = opentelemetry::proto;
namespace collector = opentelemetry::proto::collector;

std::string hex(const std::string& bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

ReceivedValue read_value(const proto::common::v1::AnyValue& value) {
  switch (value.value_case()) {
    case proto::common::v1::AnyValue::kBoolValue:
      return value.bool_value();
    case proto::common::v1::AnyValue::kIntValue:
      return value.int_value();
    case proto::common::v1::AnyValue::kDoubleValue:
      return value.double_value();
    default:
      return value.string_value();
  }
}

template <typename KeyValues>
ReceivedAttributes read_attributes(const KeyValues& attributes) {
  ReceivedAttributes out;
  for (const auto& attribute : attributes) out[attribute.key()] = read_value(attribute.value());
  return out;
}

ReceivedSpan read_span(const proto::trace::v1::Span& span) {
  ReceivedSpan out;
  out.trace_id = hex(span.trace_id());
  out.span_id = hex(span.span_id());
  out.parent_span_id = hex(span.parent_span_id());
  out.name = span.name();
  out.kind = span.kind();
  out.start = span.start_time_unix_nano();
  out.end = span.end_time_unix_nano();
  out.attributes = read_attributes(span.attributes());
  out.attribute_count = static_cast<size_t>(span.attributes_size());
  out.dropped_attributes = span.dropped_attributes_count();
  for (const auto& event : span.events())
    out.events.push_back({event.name(), event.time_unix_nano(), read_attributes(event.attributes())});
  for (const auto& link : span.links()) out.links.push_back({hex(link.trace_id()), hex(link.span_id())});
  out.error = span.status().code() == proto::trace::v1::Status::STATUS_CODE_ERROR;
  out.status_message = span.status().message();
  return out;
}

ReceivedLog read_log(const proto::logs::v1::LogRecord& log) {
  ReceivedLog out;
  out.trace_id = hex(log.trace_id());
  out.span_id = hex(log.span_id());
  out.severity = log.severity_text();
  out.severity_number = log.severity_number();
  out.event_name = log.event_name();
  out.body = log.body().string_value();
  out.time = log.time_unix_nano();
  out.attributes = read_attributes(log.attributes());
  return out;
}

ReceivedPoint read_number(const proto::metrics::v1::NumberDataPoint& point) {
  ReceivedPoint out;
  out.labels = read_attributes(point.attributes());
  out.value = point.value_case() == proto::metrics::v1::NumberDataPoint::kAsInt ? static_cast<double>(point.as_int())
                                                                                : point.as_double();
  return out;
}

template <typename Point>
void read_exemplars(const Point& point, ReceivedPoint& out) {
  for (const auto& exemplar : point.exemplars())
    out.exemplars.push_back(
        {hex(exemplar.trace_id()), hex(exemplar.span_id()), exemplar.as_double(), exemplar.time_unix_nano()});
}

ReceivedPoint read_exponential(const proto::metrics::v1::ExponentialHistogramDataPoint& point) {
  ReceivedPoint out;
  out.labels = read_attributes(point.attributes());
  out.count = point.count();
  out.sum = point.sum();
  out.min = point.min();
  out.max = point.max();
  out.scale = point.scale();
  out.zero_count = point.zero_count();
  out.offset = point.positive().offset();
  out.bucket_counts.assign(point.positive().bucket_counts().begin(), point.positive().bucket_counts().end());
  read_exemplars(point, out);
  return out;
}

ReceivedPoint read_histogram(const proto::metrics::v1::HistogramDataPoint& point) {
  ReceivedPoint out;
  out.labels = read_attributes(point.attributes());
  out.count = point.count();
  out.sum = point.sum();
  out.min = point.min();
  out.max = point.max();
  out.bounds.assign(point.explicit_bounds().begin(), point.explicit_bounds().end());
  out.bucket_counts.assign(point.bucket_counts().begin(), point.bucket_counts().end());
  read_exemplars(point, out);
  return out;
}

// A google.rpc.Status that holds a RetryInfo of 50 ms.
std::string retry_info() {
  google::protobuf::Duration delay;
  delay.set_nanos(50'000'000);
  const std::string delay_bytes = delay.SerializeAsString();
  google::protobuf::Any any;
  any.set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  any.set_value(std::string{'\x0a', static_cast<char>(delay_bytes.size())} + delay_bytes);
  const std::string any_bytes = any.SerializeAsString();
  return std::string{'\x08', '\x08', '\x1a', static_cast<char>(any_bytes.size())} + any_bytes;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<grpc::ServerCredentials> credentials(const TlsFiles* tls) {
  if (tls == nullptr) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = read_file(tls->ca());
  options.pem_key_cert_pairs.push_back({read_file(tls->server_key()), read_file(tls->server_certificate())});
  return grpc::SslServerCredentials(options);
}

bool is_cumulative(proto::metrics::v1::AggregationTemporality temporality) {
  return temporality == proto::metrics::v1::AGGREGATION_TEMPORALITY_CUMULATIVE;
}

ReceivedMetric read_metric(const proto::metrics::v1::Metric& metric) {
  ReceivedMetric out;
  out.name = metric.name();
  out.unit = metric.unit();
  if (metric.has_sum()) {
    out.kind = "sum";
    out.monotonic = metric.sum().is_monotonic();
    out.cumulative = is_cumulative(metric.sum().aggregation_temporality());
    for (const auto& point : metric.sum().data_points()) out.points.push_back(read_number(point));
  } else if (metric.has_gauge()) {
    out.kind = "gauge";
    for (const auto& point : metric.gauge().data_points()) out.points.push_back(read_number(point));
  } else if (metric.has_histogram()) {
    out.kind = "histogram";
    out.cumulative = is_cumulative(metric.histogram().aggregation_temporality());
    for (const auto& point : metric.histogram().data_points()) out.points.push_back(read_histogram(point));
  } else if (metric.has_exponential_histogram()) {
    out.kind = "exponential_histogram";
    out.cumulative = is_cumulative(metric.exponential_histogram().aggregation_temporality());
    for (const auto& point : metric.exponential_histogram().data_points())
      out.points.push_back(read_exponential(point));
  }
  return out;
}

}  // namespace

std::string text_of(const ReceivedAttributes& attributes, const std::string& key) {
  const auto found = attributes.find(key);
  if (found == attributes.end()) return {};
  if (const auto* text = std::get_if<std::string>(&found->second)) return *text;
  if (const auto* flag = std::get_if<bool>(&found->second)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&found->second)) return std::to_string(*number);
  return std::to_string(std::get<double>(found->second));
}

const ReceivedPoint* ReceivedMetric::point(const std::map<std::string, std::string>& labels) const {
  for (const ReceivedPoint& candidate : points) {
    bool same = candidate.labels.size() == labels.size();
    for (const auto& [key, value] : labels) same = same && text_of(candidate.labels, key) == value;
    if (same) return &candidate;
  }
  return nullptr;
}

struct OtlpReceiver::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  Mode mode = Mode::kAnswer;
  bool ending = false;
  std::vector<ReceivedSpan> spans;
  std::vector<ReceivedLog> logs;
  std::map<std::string, ReceivedMetric> metrics;  // by instance and name
  std::string raw;
  std::map<std::string, std::string> headers;
  size_t requests = 0;

  bool partly() const {
    const std::lock_guard lock(mutex);
    return mode == Mode::kPartly;
  }

  // Keeps or refuses the request, depending on the mode.
  template <typename Request, typename Take>
  grpc::Status receive(const grpc::ServerContext& context, const Request& request, Take&& take) {
    std::unique_lock lock(mutex);
    ++requests;
    if (mode == Mode::kHang) {
      changed.notify_all();
      changed.wait(lock, [this] { return ending || mode != Mode::kHang; });
      return {grpc::StatusCode::UNAVAILABLE, "ending"};
    }
    if (mode == Mode::kAway) return {grpc::StatusCode::UNAVAILABLE, "away for the test"};
    if (mode == Mode::kRefuse) return {grpc::StatusCode::INVALID_ARGUMENT, "refused by the test"};
    if (mode == Mode::kBusy) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "busy for the test", retry_info()};
    raw += request.SerializeAsString();
    for (const auto& [key, value] : context.client_metadata())
      headers[std::string(key.data(), key.size())] = std::string(value.data(), value.size());
    take();
    changed.notify_all();
    return grpc::Status::OK;
  }

  struct TraceService final : collector::trace::v1::TraceService::Service {
    explicit TraceService(State& owner) : state(owner) {}
    grpc::Status Export(grpc::ServerContext* context, const collector::trace::v1::ExportTraceServiceRequest* request,
                        collector::trace::v1::ExportTraceServiceResponse* response) override {
      if (state.partly()) response->mutable_partial_success()->set_rejected_spans(1);
      return state.receive(*context, *request, [&] {
        for (const auto& resource : request->resource_spans()) {
          for (const auto& scope : resource.scope_spans()) {
            for (const auto& span : scope.spans()) {
              state.spans.push_back(read_span(span));
              state.spans.back().scope = scope.scope().name();
              state.spans.back().resource = read_attributes(resource.resource().attributes());
            }
          }
        }
      });
    }
    State& state;
  };

  struct LogsService final : collector::logs::v1::LogsService::Service {
    explicit LogsService(State& owner) : state(owner) {}
    grpc::Status Export(grpc::ServerContext* context, const collector::logs::v1::ExportLogsServiceRequest* request,
                        collector::logs::v1::ExportLogsServiceResponse* response) override {
      if (state.partly()) response->mutable_partial_success()->set_rejected_log_records(1);
      return state.receive(*context, *request, [&] {
        for (const auto& resource : request->resource_logs()) {
          for (const auto& scope : resource.scope_logs()) {
            for (const auto& log : scope.log_records()) {
              state.logs.push_back(read_log(log));
              state.logs.back().resource = read_attributes(resource.resource().attributes());
            }
          }
        }
      });
    }
    State& state;
  };

  struct MetricsService final : collector::metrics::v1::MetricsService::Service {
    explicit MetricsService(State& owner) : state(owner) {}
    grpc::Status Export(grpc::ServerContext* context,
                        const collector::metrics::v1::ExportMetricsServiceRequest* request,
                        collector::metrics::v1::ExportMetricsServiceResponse* response) override {
      if (state.partly()) response->mutable_partial_success()->set_rejected_data_points(1);
      return state.receive(*context, *request, [&] {
        for (const auto& resource : request->resource_metrics()) {
          const ReceivedAttributes attributes = read_attributes(resource.resource().attributes());
          for (const auto& scope : resource.scope_metrics()) {
            for (const auto& metric : scope.metrics()) {
              ReceivedMetric received = read_metric(metric);
              received.scope = scope.scope().name();
              received.resource = attributes;
              state.metrics[text_of(attributes, "service.instance.id") + '/' + received.name] = std::move(received);
            }
          }
        }
      });
    }
    State& state;
  };

  TraceService trace_service{*this};
  LogsService logs_service{*this};
  MetricsService metrics_service{*this};
  int port = 0;
  bool tls = false;
  std::unique_ptr<grpc::Server> server;
};

OtlpReceiver::OtlpReceiver(Mode mode, const TlsFiles* tls) : state_(std::make_unique<State>()) {
  state_->mode = mode;
  state_->tls = tls != nullptr;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials(tls), &state_->port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&state_->trace_service);
  builder.RegisterService(&state_->logs_service);
  builder.RegisterService(&state_->metrics_service);
  state_->server = builder.BuildAndStart();
  TUFT_CHECK(state_->server != nullptr && state_->port != 0, "the OTLP receiver found no port");
}

OtlpReceiver::~OtlpReceiver() {
  {
    std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
  state_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  state_->server->Wait();
}

std::string OtlpReceiver::endpoint() const {
  return (state_->tls ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(state_->port);
}

void OtlpReceiver::set_mode(Mode mode) {
  {
    std::lock_guard lock(state_->mutex);
    state_->mode = mode;
  }
  state_->changed.notify_all();
}

std::vector<ReceivedSpan> OtlpReceiver::spans() const {
  std::lock_guard lock(state_->mutex);
  return state_->spans;
}

std::vector<ReceivedLog> OtlpReceiver::logs() const {
  std::lock_guard lock(state_->mutex);
  return state_->logs;
}

std::vector<ReceivedMetric> OtlpReceiver::metrics() const {
  std::lock_guard lock(state_->mutex);
  std::vector<ReceivedMetric> out;
  for (const auto& [key, metric] : state_->metrics) out.push_back(metric);
  return out;
}

std::optional<ReceivedMetric> OtlpReceiver::metric(const std::string& name) const {
  for (ReceivedMetric& metric : metrics()) {
    if (metric.name == name) return std::move(metric);
  }
  return std::nullopt;
}

std::string OtlpReceiver::raw_bytes() const {
  std::lock_guard lock(state_->mutex);
  return state_->raw;
}

std::map<std::string, std::string> OtlpReceiver::headers() const {
  std::lock_guard lock(state_->mutex);
  return state_->headers;
}

size_t OtlpReceiver::requests() const {
  std::lock_guard lock(state_->mutex);
  return state_->requests;
}

bool OtlpReceiver::wait_until(const std::function<bool()>& done, std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!done()) {
    std::unique_lock lock(state_->mutex);
    const size_t seen = state_->requests;
    // Checked again at intervals, because `done` may depend on more than the requests that arrive here.
    state_->changed.wait_until(lock,
                               std::min(deadline, std::chrono::steady_clock::now() + std::chrono::milliseconds(50)),
                               [&] { return state_->requests != seen; });
    lock.unlock();
    if (std::chrono::steady_clock::now() >= deadline) return done();
  }
  return true;
}

}  // namespace tuft::telemetry::testing
