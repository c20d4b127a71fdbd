#include "telemetry/metric/metric_snapshot.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>

namespace tuft::telemetry::internal {
namespace {

namespace otlp_metrics = opentelemetry::proto::metrics::v1;
using Request = opentelemetry::proto::collector::metrics::v1::ExportMetricsServiceRequest;

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
  for (const otlp_metrics::NumberDataPoint& point : points) {
    MetricPoint read;
    read.labels = read_labels(point);
    if (point.value_case() == otlp_metrics::NumberDataPoint::kAsInt) {
      read.value = point.as_int();
      read.number = static_cast<double>(point.as_int());
    } else if (point.value_case() == otlp_metrics::NumberDataPoint::kAsDouble && !whole) {
      read.number = point.as_double();
    } else {
      continue;
    }
    out.points.push_back(std::move(read));
  }
}

void read_sum(const otlp_metrics::Sum& sum, MetricSnapshot& out) {
  const bool whole = std::all_of(sum.data_points().begin(), sum.data_points().end(), [](const auto& point) {
    return point.value_case() == otlp_metrics::NumberDataPoint::kAsInt;
  });
  if (!sum.is_monotonic()) {
    out.info.kind = whole ? InstrumentKind::kUpDownCounter : InstrumentKind::kObservableGauge;
  } else {
    out.info.kind = whole ? InstrumentKind::kCounter : InstrumentKind::kObservableCounter;
  }
  read_numbers(sum.data_points(), out);
}

// Returns the big-endian number; 0 if there are not eight bytes.
uint64_t read_id(std::string_view bytes) {
  uint64_t id = 0;
  if (bytes.size() != sizeof(id)) return 0;
  for (const char byte : bytes) id = id << 8 | static_cast<uint8_t>(byte);
  return id;
}

std::vector<Exemplar> read_exemplars(const otlp_metrics::HistogramDataPoint& point, const std::vector<double>& bounds) {
  std::vector<Exemplar> out;
  for (const otlp_metrics::Exemplar& exemplar : point.exemplars()) {
    if (exemplar.value_case() != otlp_metrics::Exemplar::kAsDouble || !std::isfinite(exemplar.as_double())) continue;
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), exemplar.as_double()) - bounds.begin();
    const std::string_view trace = exemplar.trace_id();
    out.push_back({.bucket = static_cast<size_t>(bucket),
                   .value = exemplar.as_double(),
                   .wall = static_cast<Nanos>(exemplar.time_unix_nano()),
                   .trace_id_high = read_id(trace.substr(0, 8)),
                   .trace_id_low = trace.size() == 16 ? read_id(trace.substr(8)) : 0,
                   .span_id = read_id(exemplar.span_id())});
  }
  return out;
}

void read_histogram(const otlp_metrics::Histogram& histogram, MetricSnapshot& out) {
  out.info.kind = InstrumentKind::kHistogram;
  for (const otlp_metrics::HistogramDataPoint& point : histogram.data_points()) {
    const std::vector<double> bounds(point.explicit_bounds().begin(), point.explicit_bounds().end());
    if (out.points.empty()) out.info.bounds = bounds;
    if (bounds != out.info.bounds || point.bucket_counts_size() != point.explicit_bounds_size() + 1) continue;
    MetricPoint read;
    read.labels = read_labels(point);
    read.counts.assign(point.bucket_counts().begin(), point.bucket_counts().end());
    for (const uint64_t count : read.counts) read.count += count;
    read.sum = point.sum();
    read.exemplars = read_exemplars(point, bounds);
    out.points.push_back(std::move(read));
  }
}

MetricSnapshot read_metric(const otlp_metrics::Metric& metric, const std::string& scope) {
  MetricSnapshot out;
  out.info.name = metric.name();
  out.info.unit = metric.unit();
  out.info.description = metric.description();
  out.info.scope = scope;
  switch (metric.data_case()) {
    case otlp_metrics::Metric::kSum:
      read_sum(metric.sum(), out);
      break;
    case otlp_metrics::Metric::kHistogram:
      read_histogram(metric.histogram(), out);
      break;
    case otlp_metrics::Metric::kGauge:
      out.info.kind = InstrumentKind::kObservableGauge;
      read_numbers(metric.gauge().data_points(), out);
      break;
    default:
      break;
  }
  return out;
}

}  // namespace

Result<std::vector<MetricSnapshot>> decode_metrics(std::string_view bytes) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return invalid_argument("these bytes are not OTLP metrics");
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

Result<LabelStrings> decode_resource(std::string_view bytes) {
  opentelemetry::proto::resource::v1::Resource resource;
  if (!resource.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return invalid_argument("these bytes are not an OTLP resource");
  LabelStrings out;
  for (const auto& attribute : resource.attributes()) {
    const auto& value = attribute.value();
    out.emplace_back(attribute.key(), value.has_int_value() ? std::to_string(value.int_value()) : value.string_value());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tuft::telemetry::internal
