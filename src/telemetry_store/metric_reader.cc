#include "telemetry_store/metric_reader.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/wire.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr size_t kLabelsMax = 32;
constexpr size_t kLabelKeyMax = 128;
constexpr size_t kLabelValueMax = 256;
constexpr size_t kBoundsMax = 256;
constexpr size_t kExemplarsReadMax = 64;
constexpr size_t kPointsReadMax = 100'000;

// Field numbers of opentelemetry/proto/metrics/v1/metrics.proto.
constexpr uint32_t kMetricName = 1, kMetricDescription = 2, kMetricUnit = 3, kMetricGauge = 5, kMetricSum = 7,
                   kMetricHistogram = 9, kMetricExponential = 10;
constexpr uint32_t kDataPoints = 1, kDataTemporality = 2, kDataMonotonic = 3;
constexpr uint32_t kPointTime = 3, kNumberDouble = 4, kNumberExemplars = 5, kNumberInt = 6, kNumberAttributes = 7;
constexpr uint32_t kHistogramCount = 4, kHistogramSum = 5, kHistogramCounts = 6, kHistogramBounds = 7,
                   kHistogramExemplars = 8, kHistogramAttributes = 9;
constexpr uint32_t kExponentialAttributes = 1, kExponentialSum = 5, kExponentialScale = 6, kExponentialZero = 7,
                   kExponentialPositive = 8, kExponentialNegative = 9, kExponentialExemplars = 11;
constexpr uint32_t kBucketsOffset = 1, kBucketsCounts = 2;
constexpr uint32_t kExemplarTime = 2, kExemplarDouble = 3, kExemplarSpan = 4, kExemplarTrace = 5, kExemplarInt = 6;
constexpr uint64_t kTemporalityDelta = 1;
// Of an exponential histogram: 2^-32 to 2^32.
constexpr int kPowerMin = -32;
constexpr int kPowerMax = 32;

void add_label(std::string_view bytes, PointView& out) {
  if (out.is_bare || out.labels.size() >= kLabelsMax) return;
  WireReader reader(bytes);
  std::string key;
  std::string value;
  while (reader.next()) {
    if (reader.field() == field::kKeyValueKey) key = clean_text(reader.bytes(), kLabelKeyMax);
    if (reader.field() != field::kKeyValueValue) continue;
    WireReader any(reader.bytes());
    if (!any.next()) continue;
    if (any.field() == field::kAnyString) value = clean_text(any.bytes(), kLabelValueMax);
    if (any.field() == field::kAnyInt) value = std::to_string(static_cast<int64_t>(any.number()));
    if (any.field() == field::kAnyBool) value = any.number() != 0 ? "true" : "false";
  }
  out.labels.emplace(std::move(key), std::move(value));
}

void add_exemplar(std::string_view bytes, PointView& out) {
  if (out.is_bare || out.exemplars.size() >= kExemplarsReadMax) return;
  ExemplarView exemplar;
  WireReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == kExemplarTime) exemplar.time = nanos_of(reader.number());
    if (reader.field() == kExemplarDouble) exemplar.value = reader.decimal();
    if (reader.field() == kExemplarInt) exemplar.value = static_cast<double>(static_cast<int64_t>(reader.number()));
    if (reader.field() == kExemplarSpan) exemplar.span = span_id_of(reader.bytes());
    if (reader.field() == kExemplarTrace) exemplar.trace = trace_id_of(reader.bytes());
  }
  if (reader.ok() && exemplar.trace.valid() && std::isfinite(exemplar.value)) out.exemplars.push_back(exemplar);
}

// Reads a packed or single field of eight bytes.
template <typename T>
bool add_fixed(const WireReader& reader, std::vector<T>& out) {
  static_assert(sizeof(T) == 8);
  if (!reader.is_bytes()) {
    out.push_back(std::bit_cast<T>(reader.number()));
  } else {
    const std::string_view bytes = reader.bytes();
    if (bytes.size() % sizeof(T) != 0 || bytes.size() / sizeof(T) > kBoundsMax + 1) return false;
    const size_t count = out.size();
    out.resize(count + bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(out.data() + count, bytes.data(), bytes.size());
  }
  return out.size() <= kBoundsMax + 1;
}

bool read_number(std::string_view bytes, PointView& out) {
  WireReader reader(bytes);
  bool has_value = false;
  while (reader.next()) {
    if (reader.field() == kPointTime) out.time = nanos_of(reader.number());
    if (reader.field() == kNumberAttributes) add_label(reader.bytes(), out);
    if (reader.field() == kNumberExemplars) add_exemplar(reader.bytes(), out);
    if (reader.field() != kNumberDouble && reader.field() != kNumberInt) continue;
    out.value =
        reader.field() == kNumberDouble ? reader.decimal() : static_cast<double>(static_cast<int64_t>(reader.number()));
    has_value = true;
  }
  return reader.ok() && has_value && std::isfinite(out.value);
}

bool read_histogram(std::string_view bytes, PointView& out) {
  WireReader reader(bytes);
  uint64_t count = 0;
  while (reader.next()) {
    if (reader.field() == kPointTime) out.time = nanos_of(reader.number());
    if (reader.field() == kHistogramCount) count = reader.number();
    if (reader.field() == kHistogramSum) out.value = reader.decimal();
    if (reader.field() == kHistogramCounts && !add_fixed(reader, out.counts)) return false;
    if (reader.field() == kHistogramBounds && !add_fixed(reader, out.bounds)) return false;
    if (reader.field() == kHistogramAttributes) add_label(reader.bytes(), out);
    if (reader.field() == kHistogramExemplars) add_exemplar(reader.bytes(), out);
  }
  if (out.counts.empty() && out.bounds.empty()) out.counts.push_back(count);
  return reader.ok() && out.counts.size() == out.bounds.size() + 1 && std::isfinite(out.value) &&
         std::is_sorted(out.bounds.begin(), out.bounds.end());
}

// Adds the buckets of an exponential histogram to buckets whose bounds are powers of two.
bool add_buckets(std::string_view bytes, int scale, bool negative, std::vector<uint64_t>& counts) {
  WireReader reader(bytes);
  int64_t index = 0;
  std::vector<uint64_t> values;
  while (reader.next()) {
    if (reader.field() == kBucketsOffset)
      index = static_cast<int32_t>((reader.number() >> 1) ^ (~(reader.number() & 1) + 1));
    if (reader.field() != kBucketsCounts) continue;
    if (!reader.is_bytes()) {
      values.push_back(reader.number());
      continue;
    }
    // A packed list of varints; each is read as if it were a field of its own.
    uint64_t value = 0;
    int shift = 0;
    for (const char c : reader.bytes()) {
      if (shift > 63 || values.size() > 1024) return false;
      value |= static_cast<uint64_t>(c & 0x7f) << shift;
      shift += 7;
      if ((c & 0x80) != 0) continue;
      values.push_back(value);
      value = 0;
      shift = 0;
    }
  }
  for (const uint64_t value : values) {
    // Bucket i ends at 2^((i + 1) / 2^scale).
    const double power = std::ldexp(static_cast<double>(++index), -scale);
    const double bound = std::clamp(std::ceil(power), double{kPowerMin}, double{kPowerMax} + 1);
    counts[negative ? 0 : static_cast<size_t>(bound - kPowerMin)] += value;
  }
  return reader.ok();
}

bool read_exponential(std::string_view bytes, PointView& out) {
  for (int power = kPowerMin; power <= kPowerMax; ++power) out.bounds.push_back(std::ldexp(1.0, power));
  out.counts.resize(out.bounds.size() + 1);
  WireReader reader(bytes);
  int scale = 0;
  std::string_view positive;
  std::string_view negative;
  while (reader.next()) {
    if (reader.field() == kPointTime) out.time = nanos_of(reader.number());
    if (reader.field() == kExponentialSum) out.value = reader.decimal();
    if (reader.field() == kExponentialScale)
      scale = static_cast<int32_t>((reader.number() >> 1) ^ (~(reader.number() & 1) + 1));
    if (reader.field() == kExponentialZero) out.counts[0] += reader.number();
    if (reader.field() == kExponentialPositive) positive = reader.bytes();
    if (reader.field() == kExponentialNegative) negative = reader.bytes();
    if (reader.field() == kExponentialAttributes) add_label(reader.bytes(), out);
    if (reader.field() == kExponentialExemplars) add_exemplar(reader.bytes(), out);
  }
  if (!reader.ok() || scale < -16 || scale > 32 || !std::isfinite(out.value)) return false;
  return add_buckets(positive, scale, false, out.counts) && add_buckets(negative, scale, true, out.counts);
}

size_t count_points(std::string_view content) {
  size_t count = 0;
  WireReader points(content);
  while (points.next()) count += points.field() == kDataPoints && points.is_bytes() ? 1 : 0;
  return count;
}

class MetricsReader {
 public:
  using Visit = std::function<void(const MetricView&, const PointView&)>;
  using LeftOut = std::function<void(PointFault, size_t)>;

  // Without `visit`, points are read bare.
  MetricsReader(const Visit& visit, const LeftOut& left_out) : visit_(visit), visit_left_out_(left_out) {}

  size_t read(std::string_view request) {
    WireReader resources(request);
    while (resources.next()) {
      if (resources.field() != 1) continue;
      const std::string_view service = service_of_resource(resources.bytes());
      WireReader scopes(resources.bytes());
      while (scopes.next()) {
        if (scopes.field() != 2) continue;
        WireReader metrics(scopes.bytes());
        while (metrics.next()) {
          if (metrics.field() == 2) read_metric(service, metrics.bytes());
        }
        if (!metrics.ok()) leave_out(PointFault::kMalformed, 1);
      }
      if (!scopes.ok()) leave_out(PointFault::kMalformed, 1);
    }
    if (!resources.ok()) leave_out(PointFault::kMalformed, 1);
    return left_out_;
  }

 private:
  void leave_out(PointFault fault, size_t points) {
    left_out_ += points;
    if (visit_left_out_ && points > 0) visit_left_out_(fault, points);
  }

  void read_metric(std::string_view service, std::string_view bytes) {
    MetricView metric;
    metric.service = service;
    WireReader reader(bytes);
    uint32_t data = 0;
    std::string_view content;
    while (reader.next()) {
      if (reader.field() == kMetricName) metric.name = reader.bytes();
      if (reader.field() == kMetricDescription) metric.description = reader.bytes();
      if (reader.field() == kMetricUnit) metric.unit = reader.bytes();
      if (reader.field() < kMetricGauge || reader.field() > kMetricExponential + 1) continue;
      data = reader.field();
      content = reader.bytes();
    }
    const bool is_known =
        data == kMetricGauge || data == kMetricSum || data == kMetricHistogram || data == kMetricExponential;
    if (!reader.ok()) return leave_out(PointFault::kMalformed, std::max<size_t>(count_points(content), 1));
    if (!is_known) return leave_out(PointFault::kOtherType, count_points(content));
    if (metric.name.empty()) return leave_out(PointFault::kUnnamed, count_points(content));
    read_data(metric, data, content);
  }

  void read_data(MetricView& metric, uint32_t data, std::string_view content) {
    bool monotonic = false;
    WireReader head(content);
    while (head.next()) {
      if (head.field() == kDataTemporality && data != kMetricGauge)
        metric.is_delta = head.number() == kTemporalityDelta;
      if (head.field() == kDataMonotonic) monotonic = head.number() != 0;
    }
    metric.kind = data == kMetricGauge ? MetricKind::kGauge
                  : data != kMetricSum ? MetricKind::kHistogram
                  : monotonic          ? MetricKind::kCounter
                                       : MetricKind::kUpDownCounter;
    const auto read_point = data == kMetricHistogram     ? read_histogram
                            : data == kMetricExponential ? read_exponential
                                                         : read_number;
    WireReader points(content);
    while (points.next()) {
      if (points.field() != kDataPoints || !points.is_bytes()) continue;
      PointView point;
      point.is_bare = !visit_;
      if (++points_ > kPointsReadMax || !read_point(points.bytes(), point)) {
        leave_out(PointFault::kMalformed, 1);
      } else if (visit_) {
        visit_(metric, point);
      }
    }
    if (!points.ok()) leave_out(PointFault::kMalformed, 1);
  }

  const Visit& visit_;
  const LeftOut& visit_left_out_;
  size_t left_out_ = 0;
  size_t points_ = 0;
};

}  // namespace

size_t read_metrics(std::string_view request, const std::function<void(const MetricView&, const PointView&)>& visit) {
  const MetricsReader::LeftOut nobody;
  return MetricsReader(visit, nobody).read(request);
}

size_t check_metrics(std::string_view request, const std::function<void(PointFault fault, size_t points)>& left_out) {
  const MetricsReader::Visit nothing;
  return MetricsReader(nothing, left_out).read(request);
}

}  // namespace tuft::telemetry_store::internal
