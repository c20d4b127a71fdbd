#include "telemetry/metric_snapshot.h"

#include <algorithm>
#include <exception>
#include <map>

#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>

#include "telemetry/log_line.h"

namespace tuft::telemetry::internal {
namespace {

namespace otlp = opentelemetry::proto::metrics::v1;
using Request = opentelemetry::proto::collector::metrics::v1::ExportMetricsServiceRequest;

constexpr auto kCumulative = otlp::AGGREGATION_TEMPORALITY_CUMULATIVE;

template <typename Point>
void put_labels(const LabelStrings& labels, Point& out) {
  for (const auto& [key, value] : labels) {
    auto& attribute = *out.add_attributes();
    attribute.set_key(to_utf8(key));
    attribute.mutable_value()->set_string_value(to_utf8(value));
  }
}

void put_number(const MetricSnapshot& metric, const MetricPoint& point, otlp::NumberDataPoint& out) {
  put_labels(point.labels, out);
  const bool whole = metric.info.kind == InstrumentKind::kCounter || metric.info.kind == InstrumentKind::kUpDownCounter;
  if (whole) {
    out.set_as_int(point.value);
  } else {
    out.set_as_double(point.number);
  }
}

void put_histogram(const MetricSnapshot& metric, otlp::Histogram& out) {
  out.set_aggregation_temporality(kCumulative);
  for (const MetricPoint& point : metric.points) {
    otlp::HistogramDataPoint& data = *out.add_data_points();
    put_labels(point.labels, data);
    data.set_count(point.count);
    data.set_sum(point.sum);
    data.mutable_explicit_bounds()->Assign(metric.info.bounds.begin(), metric.info.bounds.end());
    data.mutable_bucket_counts()->Assign(point.counts.begin(), point.counts.end());
  }
}

void put_metric(const MetricSnapshot& metric, otlp::Metric& out) {
  out.set_name(metric.info.name);
  out.set_unit(metric.info.unit);
  out.set_description(metric.info.description);
  switch (metric.info.kind) {
    case InstrumentKind::kHistogram:
      return put_histogram(metric, *out.mutable_histogram());
    case InstrumentKind::kCounter:
    case InstrumentKind::kUpDownCounter:
    case InstrumentKind::kObservableCounter: {
      otlp::Sum& sum = *out.mutable_sum();
      sum.set_aggregation_temporality(kCumulative);
      sum.set_is_monotonic(metric.info.kind != InstrumentKind::kUpDownCounter);
      for (const MetricPoint& point : metric.points) put_number(metric, point, *sum.add_data_points());
      return;
    }
    case InstrumentKind::kGauge:
    case InstrumentKind::kObservableGauge:
      break;
  }
  for (const MetricPoint& point : metric.points) put_number(metric, point, *out.mutable_gauge()->add_data_points());
}

template <typename Point>
LabelStrings read_labels(const Point& point) {
  LabelStrings labels;
  for (const auto& attribute : point.attributes())
    labels.emplace_back(attribute.key(), attribute.value().string_value());
  std::sort(labels.begin(), labels.end());
  return labels;
}

template <typename Points>
void read_numbers(const Points& points, MetricSnapshot& out) {
  const bool whole = out.info.kind == InstrumentKind::kCounter || out.info.kind == InstrumentKind::kUpDownCounter;
  for (const otlp::NumberDataPoint& point : points) {
    MetricPoint read;
    read.labels = read_labels(point);
    if (point.value_case() == otlp::NumberDataPoint::kAsInt) {
      read.value = point.as_int();
      read.number = static_cast<double>(point.as_int());
    } else if (point.value_case() == otlp::NumberDataPoint::kAsDouble && !whole) {
      read.number = point.as_double();
    } else {
      continue;
    }
    out.points.push_back(std::move(read));
  }
}

void read_sum(const otlp::Sum& sum, MetricSnapshot& out) {
  const bool whole = std::all_of(sum.data_points().begin(), sum.data_points().end(),
                                 [](const auto& point) { return point.value_case() == otlp::NumberDataPoint::kAsInt; });
  if (!sum.is_monotonic()) {
    out.info.kind = whole ? InstrumentKind::kUpDownCounter : InstrumentKind::kObservableGauge;
  } else {
    out.info.kind = whole ? InstrumentKind::kCounter : InstrumentKind::kObservableCounter;
  }
  read_numbers(sum.data_points(), out);
}

void read_histogram(const otlp::Histogram& histogram, MetricSnapshot& out) {
  out.info.kind = InstrumentKind::kHistogram;
  for (const otlp::HistogramDataPoint& point : histogram.data_points()) {
    const std::vector<double> bounds(point.explicit_bounds().begin(), point.explicit_bounds().end());
    if (out.points.empty()) out.info.bounds = bounds;
    if (bounds != out.info.bounds || point.bucket_counts_size() != point.explicit_bounds_size() + 1) continue;
    MetricPoint read;
    read.labels = read_labels(point);
    read.counts.assign(point.bucket_counts().begin(), point.bucket_counts().end());
    for (const uint64_t count : read.counts) read.count += count;
    read.sum = point.sum();
    out.points.push_back(std::move(read));
  }
}

MetricSnapshot read_metric(const otlp::Metric& metric, const std::string& scope) {
  MetricSnapshot out;
  out.info.name = metric.name();
  out.info.unit = metric.unit();
  out.info.description = metric.description();
  out.info.scope = scope;
  switch (metric.data_case()) {
    case otlp::Metric::kSum:
      read_sum(metric.sum(), out);
      break;
    case otlp::Metric::kHistogram:
      read_histogram(metric.histogram(), out);
      break;
    case otlp::Metric::kGauge:
      out.info.kind = InstrumentKind::kObservableGauge;
      read_numbers(metric.gauge().data_points(), out);
      break;
    default:
      break;
  }
  return out;
}

}  // namespace

std::string encode_metrics(const std::vector<MetricSnapshot>& metrics) {
  Request request;
  auto& resource = *request.add_resource_metrics();
  std::map<std::string_view, otlp::ScopeMetrics*> scopes;
  for (const MetricSnapshot& metric : metrics) {
    otlp::ScopeMetrics*& scope = scopes[metric.info.scope];
    if (scope == nullptr) {
      scope = resource.add_scope_metrics();
      scope->mutable_scope()->set_name(metric.info.scope);
    }
    put_metric(metric, *scope->add_metrics());
  }
  return request.SerializeAsString();
}

Result<std::vector<MetricSnapshot>> decode_metrics(std::string_view bytes) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return invalid_argument("these bytes are no OTLP metrics");
  std::vector<MetricSnapshot> out;
  for (const auto& resource : request.resource_metrics()) {
    for (const auto& scope : resource.scope_metrics()) {
      for (const auto& metric : scope.metrics()) {
        MetricSnapshot read = read_metric(metric, scope.scope().name());
        if (!read.points.empty()) out.push_back(std::move(read));
      }
    }
  }
  return out;
}

}  // namespace tuft::telemetry::internal
