#include "telemetry/otlp/encode_metrics.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "telemetry/otlp/wire.h"

namespace tuft::telemetry::internal::otlp {
namespace {

constexpr size_t kRequestBytesMax = size_t{2} << 20;

// Field numbers of opentelemetry/proto/metrics/v1/metrics.proto.
namespace metric_field {
constexpr uint32_t kName = 1;
constexpr uint32_t kDescription = 2;
constexpr uint32_t kUnit = 3;
constexpr uint32_t kGauge = 5;
constexpr uint32_t kSum = 7;
constexpr uint32_t kHistogram = 9;
constexpr uint32_t kExponential = 10;
}  // namespace metric_field
// Fields of Gauge, Sum, Histogram and ExponentialHistogram.
namespace data_field {
constexpr uint32_t kPoints = 1;
constexpr uint32_t kTemporality = 2;
constexpr uint32_t kMonotonic = 3;
}  // namespace data_field
// Fields of NumberDataPoint and HistogramDataPoint.
namespace point_field {
constexpr uint32_t kStart = 2;
constexpr uint32_t kTime = 3;
constexpr uint32_t kDouble = 4;
constexpr uint32_t kCount = 4;
constexpr uint32_t kSum = 5;
constexpr uint32_t kInt = 6;
constexpr uint32_t kBucketCounts = 6;
constexpr uint32_t kNumberAttributes = 7;
constexpr uint32_t kBounds = 7;
constexpr uint32_t kExemplars = 8;
constexpr uint32_t kHistogramAttributes = 9;
constexpr uint32_t kMin = 11;
constexpr uint32_t kMax = 12;
}  // namespace point_field
// Fields of ExponentialHistogramDataPoint that differ from those of HistogramDataPoint.
namespace exponential_field {
constexpr uint32_t kAttributes = 1;
constexpr uint32_t kScale = 6;
constexpr uint32_t kZeroCount = 7;
constexpr uint32_t kPositive = 8;
constexpr uint32_t kNegative = 9;
constexpr uint32_t kExemplars = 11;
constexpr uint32_t kMin = 12;
constexpr uint32_t kMax = 13;
// Of Buckets.
constexpr uint32_t kOffset = 1;
constexpr uint32_t kCounts = 2;
}  // namespace exponential_field
namespace exemplar_field {
constexpr uint32_t kTime = 2;
constexpr uint32_t kDouble = 3;
constexpr uint32_t kSpanId = 4;
constexpr uint32_t kTraceId = 5;
}  // namespace exemplar_field
constexpr uint64_t kDelta = 1;
constexpr uint64_t kCumulative = 2;

// What the points of an export have in common. The interval is from `start` to `end`.
struct Common {
  Nanos start = 0;
  Nanos end = 0;
  bool delta = false;
  const PointOptions& options;
};

// Two cumulative readings do not give the minimum and maximum of the interval.
bool has_extremes(const MetricPoint& point, const Common& common) {
  return !common.delta && point.count > 0 && std::isfinite(point.min) && std::isfinite(point.max);
}

void put_labels(WireWriter& writer, uint32_t field, const LabelStrings& labels) {
  for (const auto& [key, value] : labels) {
    const size_t attribute = writer.open(field);
    writer.text(1, key);
    const size_t any = writer.open(2);
    writer.text(1, value);
    writer.close(any);
    writer.close(attribute);
  }
}

void put_number(WireWriter& writer, const MetricPoint& point, bool whole, const Common& common) {
  const size_t start = writer.open(data_field::kPoints);
  writer.fixed64(point_field::kStart, static_cast<uint64_t>(common.start));
  writer.fixed64(point_field::kTime, static_cast<uint64_t>(common.end));
  if (whole) {
    writer.fixed64(point_field::kInt, static_cast<uint64_t>(point.value));
  } else {
    writer.number(point_field::kDouble, point.number);
  }
  put_labels(writer, point_field::kNumberAttributes, point.labels);
  put_labels(writer, point_field::kNumberAttributes, common.options.labels);
  writer.close(start);
}

// Ids are big-endian bytes.
void put_id(WireWriter& writer, uint32_t field, std::initializer_list<uint64_t> parts) {
  char bytes[16];
  char* out = bytes;
  for (const uint64_t part : parts) out = WireWriter::put_raw(out, __builtin_bswap64(part));
  writer.bytes(field, {bytes, static_cast<size_t>(out - bytes)});
}

// An exemplar from before the interval was sent with an earlier point.
void put_exemplars(WireWriter& writer, uint32_t field, const MetricPoint& point, const Common& common) {
  for (const Exemplar& exemplar : point.exemplars) {
    if (exemplar.wall < common.start) continue;
    const size_t start = writer.open(field);
    writer.fixed64(exemplar_field::kTime, static_cast<uint64_t>(exemplar.wall));
    writer.number(exemplar_field::kDouble, exemplar.value);
    if (exemplar.in_trace()) {
      put_id(writer, exemplar_field::kSpanId, {exemplar.span_id});
      put_id(writer, exemplar_field::kTraceId, {exemplar.trace_id_high, exemplar.trace_id_low});
    }
    writer.close(start);
  }
}

// Protobuf's zigzag encoding of a signed number.
uint64_t zigzag(int32_t value) {
  return static_cast<uint32_t>(value) << 1 ^ static_cast<uint32_t>(value >> 31);
}

void put_buckets(WireWriter& writer, uint32_t field, const ExponentialBuckets& buckets) {
  if (buckets.counts.empty()) return;
  const size_t start = writer.open(field);
  writer.varint(exponential_field::kOffset, zigzag(buckets.offset));
  const size_t counts = writer.open(exponential_field::kCounts);
  for (const uint64_t count : buckets.counts) writer.set_end(WireWriter::put_varint(writer.room(16), count));
  writer.close(counts);
  writer.close(start);
}

void put_exponential(WireWriter& writer, const MetricPoint& point, const Common& common) {
  const ExponentialPoint none;
  const ExponentialPoint& exponential = point.exponential ? *point.exponential : none;
  const size_t start = writer.open(data_field::kPoints);
  put_labels(writer, exponential_field::kAttributes, point.labels);
  put_labels(writer, exponential_field::kAttributes, common.options.labels);
  writer.fixed64(point_field::kStart, static_cast<uint64_t>(common.start));
  writer.fixed64(point_field::kTime, static_cast<uint64_t>(common.end));
  writer.fixed64(point_field::kCount, exponential.count());
  writer.number(point_field::kSum, point.sum);
  writer.varint(exponential_field::kScale, zigzag(exponential.scale));
  writer.fixed64(exponential_field::kZeroCount, exponential.zero_count);
  put_buckets(writer, exponential_field::kPositive, exponential.positive);
  put_buckets(writer, exponential_field::kNegative, exponential.negative);
  put_exemplars(writer, exponential_field::kExemplars, point, common);
  if (has_extremes(point, common)) {
    writer.number(exponential_field::kMin, point.min);
    writer.number(exponential_field::kMax, point.max);
  }
  writer.close(start);
}

void put_histogram(WireWriter& writer, const MetricPoint& point, const std::vector<double>& bounds,
                   const Common& common) {
  const size_t start = writer.open(data_field::kPoints);
  writer.fixed64(point_field::kStart, static_cast<uint64_t>(common.start));
  writer.fixed64(point_field::kTime, static_cast<uint64_t>(common.end));
  writer.fixed64(point_field::kCount, point.count);
  writer.number(point_field::kSum, point.sum);
  const auto put_packed = [&writer](uint32_t field, const auto& values) {
    writer.bytes(field, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])});
  };
  if (!point.counts.empty()) put_packed(point_field::kBucketCounts, point.counts);
  if (!bounds.empty()) put_packed(point_field::kBounds, bounds);
  put_exemplars(writer, point_field::kExemplars, point, common);
  put_labels(writer, point_field::kHistogramAttributes, point.labels);
  put_labels(writer, point_field::kHistogramAttributes, common.options.labels);
  if (has_extremes(point, common)) {
    writer.number(point_field::kMin, point.min);
    writer.number(point_field::kMax, point.max);
  }
  writer.close(start);
}

bool is_gauge(InstrumentKind kind) {
  return kind == InstrumentKind::kGauge || kind == InstrumentKind::kObservableGauge;
}

uint32_t data_kind(InstrumentKind kind, HistogramAggregation histograms) {
  if (is_gauge(kind)) return metric_field::kGauge;
  if (kind != InstrumentKind::kHistogram) return metric_field::kSum;
  return histograms == HistogramAggregation::kExponential ? metric_field::kExponential : metric_field::kHistogram;
}

template <typename Points>
void put_metric(WireWriter& writer, const InstrumentInfo& info, const Points& points, const Common& common) {
  const HistogramAggregation histograms = common.options.histograms;
  const size_t metric = writer.open(2);
  writer.text(metric_field::kName, info.name);
  writer.text(metric_field::kDescription, info.description);
  writer.text(metric_field::kUnit, info.unit);
  const size_t data = writer.open(data_kind(info.kind, histograms));
  const bool whole = info.kind == InstrumentKind::kCounter || info.kind == InstrumentKind::kUpDownCounter;
  for (const MetricPoint& point : points) {
    if (info.kind == InstrumentKind::kHistogram && histograms == HistogramAggregation::kExponential) {
      put_exponential(writer, point, common);
    } else if (info.kind == InstrumentKind::kHistogram) {
      put_histogram(writer, point, info.bounds, common);
    } else {
      put_number(writer, point, whole, common);
    }
  }
  if (!is_gauge(info.kind)) writer.varint(data_field::kTemporality, common.delta ? kDelta : kCumulative);
  if (info.kind == InstrumentKind::kCounter || info.kind == InstrumentKind::kObservableCounter)
    writer.varint(data_field::kMonotonic, 1);
  writer.close(data);
  writer.close(metric);
}

// Returns `now` minus what was delivered before, or `now` if the series began again.
MetricPoint difference(MetricPoint now, const MetricPoint& before) {
  if (now.value < before.value || now.count < before.count || (now.counts.empty() && now.number < before.number))
    return now;
  now.value -= before.value;
  now.number -= before.number;
  now.count -= before.count;
  now.sum -= before.sum;
  for (size_t i = 0; i < now.counts.size() && i < before.counts.size(); ++i)
    now.counts[i] -= std::min(now.counts[i], before.counts[i]);
  if (now.exponential && before.exponential)
    now.exponential = exponential_difference(std::move(*now.exponential), *before.exponential);
  return now;
}

// Builds the ScopeMetrics by name and the ResourceMetrics around them.
class RequestWriter {
 public:
  WireWriter& scope(const std::string& name) { return scopes_[name]; }

  std::string finish(std::string_view resource) {
    WireWriter request;
    const size_t start = request.open(1);
    request.bytes(1, resource);
    for (const auto& [name, metrics] : scopes_) {
      const size_t scope = request.open(2);
      const size_t scope_head = request.open(1);
      request.text(1, name);
      request.close(scope_head);
      request.raw(metrics.view());
      request.close(scope);
    }
    request.close(start);
    scopes_.clear();
    return std::string(request.view());
  }

 private:
  std::map<std::string, WireWriter> scopes_;
};

}  // namespace

std::string encode_metrics(const std::vector<MetricSnapshot>& metrics, std::string_view resource, Nanos start_wall,
                           Nanos now_wall) {
  const PointOptions options;
  RequestWriter request;
  for (const MetricSnapshot& metric : metrics)
    put_metric(request.scope(metric.info.scope), metric.info, metric.points, {start_wall, now_wall, false, options});
  return request.finish(resource);
}

MetricsEncoder::MetricsEncoder(std::string resource, Temporality temporality, Nanos start_wall, PointOptions options)
    : resource_(std::move(resource)),
      temporality_(temporality),
      start_wall_(start_wall),
      options_(std::move(options)) {}

bool MetricsEncoder::sends_delta(InstrumentKind kind) const {
  if (kind == InstrumentKind::kCounter || kind == InstrumentKind::kHistogram)
    return temporality_ != Temporality::kCumulative;
  return kind == InstrumentKind::kObservableCounter && temporality_ == Temporality::kDelta;
}

std::vector<MetricsRequest> MetricsEncoder::encode(const std::vector<MetricSnapshot>& metrics, Nanos now_wall) {
  std::vector<MetricsRequest> requests;
  RequestWriter writer;
  MetricsRequest request;
  size_t bytes = 0;
  const auto finish = [&] {
    if (request.metrics.empty()) return;
    request.bytes = writer.finish(resource_);
    requests.push_back(std::exchange(request, {}));
    bytes = 0;
  };
  for (size_t i = 0; i < metrics.size(); ++i) {
    const MetricSnapshot& metric = metrics[i];
    WireWriter& scope = writer.scope(metric.info.scope);
    const size_t before = scope.size();
    if (sends_delta(metric.info.kind)) {
      const Delivered& last = delivered_[metric.info.name];
      std::vector<MetricPoint> points;
      for (const MetricPoint& point : metric.points) {
        const auto found = last.points.find(point.labels);
        points.push_back(found == last.points.end() ? point : difference(point, found->second));
      }
      put_metric(scope, metric.info, points, {last.wall != 0 ? last.wall : start_wall_, now_wall, true, options_});
    } else {
      put_metric(scope, metric.info, metric.points, {start_wall_, now_wall, false, options_});
    }
    bytes += scope.size() - before;
    request.points += metric.points.size();
    request.metrics.push_back(i);
    if (bytes >= kRequestBytesMax) finish();
  }
  finish();
  return requests;
}

void MetricsEncoder::delivered(const MetricsRequest& request, const std::vector<MetricSnapshot>& metrics,
                               Nanos now_wall) {
  for (const size_t i : request.metrics) {
    const MetricSnapshot& metric = metrics[i];
    if (!sends_delta(metric.info.kind)) continue;
    Delivered& last = delivered_[metric.info.name];
    last.wall = now_wall;
    last.points.clear();
    for (const MetricPoint& point : metric.points) last.points.emplace(point.labels, point);
  }
}

}  // namespace tuft::telemetry::internal::otlp
