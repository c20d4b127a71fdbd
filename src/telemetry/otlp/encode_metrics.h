// Encodes metric snapshots as OTLP. Internal to telemetry.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "telemetry/metric/metric_store.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry::internal::otlp {

// Returns an ExportMetricsServiceRequest with cumulative values and explicit buckets. `resource`: an encoded Resource;
// may be empty.
std::string encode_metrics(const std::vector<MetricSnapshot>& metrics, std::string_view resource, Nanos start_wall,
                           Nanos now_wall);

struct MetricsRequest {
  std::string bytes;
  size_t points = 0;
  std::vector<size_t> metrics;  // indices of the instruments in the encoded snapshot
};

struct PointOptions {
  HistogramAggregation histograms = HistogramAggregation::kExplicitBuckets;
  LabelStrings labels = {};  // attributes that every data point gets beside its own
};

// Encodes cumulative snapshots in the chosen temporality. A delta is relative to what was delivered, so that a failed
// export loses nothing. For one thread.
class MetricsEncoder {
 public:
  MetricsEncoder(std::string resource, Temporality temporality, Nanos start_wall, PointOptions options = {});

  // Returns requests that are smaller than a collector's default limit (4 MiB).
  std::vector<MetricsRequest> encode(const std::vector<MetricSnapshot>& metrics, Nanos now_wall);
  // Notes that the collector has received `request` of the snapshot taken at `now_wall`.
  void delivered(const MetricsRequest& request, const std::vector<MetricSnapshot>& metrics, Nanos now_wall);

 private:
  struct Delivered {
    Nanos wall = 0;
    std::map<LabelStrings, MetricPoint> points;
  };

  bool sends_delta(InstrumentKind kind) const;

  const std::string resource_;
  const Temporality temporality_;
  const Nanos start_wall_;
  const PointOptions options_;
  std::map<std::string, Delivered> delivered_;  // by instrument; only instruments sent as deltas
};

}  // namespace tuft::telemetry::internal::otlp
