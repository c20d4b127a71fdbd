// Reads the metrics of this process in tests that need no collector. Counters and histograms count from the
// construction on.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/metric/metric_store.h"
#include "telemetry/record/recording.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry::testing {

class RecordedMetrics {
 public:
  using LabelList = std::vector<std::pair<std::string, std::string>>;

  // Switches metrics on, if they are off, until the destructor.
  RecordedMetrics() : switched_on_(!internal::metrics_recording()) {
    if (switched_on_) static_cast<void>(init_telemetry({}));
    before_ = internal::collect_metrics();
  }
  ~RecordedMetrics() {
    if (switched_on_) shutdown_telemetry(kSecond);
  }
  RecordedMetrics(const RecordedMetrics&) = delete;
  RecordedMetrics& operator=(const RecordedMetrics&) = delete;

  // Returns 0 if there is no series.
  int64_t counter(const std::string& name, const LabelList& labels = {}) const {
    return now(name, labels).value - find(before_, name, labels).value_or(internal::MetricPoint{}).value;
  }
  // Returns the count and the sum of a histogram.
  uint64_t count(const std::string& name, const LabelList& labels = {}) const {
    return now(name, labels).count - find(before_, name, labels).value_or(internal::MetricPoint{}).count;
  }
  double sum(const std::string& name, const LabelList& labels = {}) const {
    return now(name, labels).sum - find(before_, name, labels).value_or(internal::MetricPoint{}).sum;
  }
  std::optional<double> gauge(const std::string& name, const LabelList& labels = {}) const {
    const auto point = find(internal::collect_metrics(), name, labels);
    return point ? std::optional(point->number) : std::nullopt;
  }

 private:
  using Snapshots = std::vector<internal::MetricSnapshot>;

  static internal::MetricPoint now(const std::string& name, const LabelList& labels) {
    return find(internal::collect_metrics(), name, labels).value_or(internal::MetricPoint{});
  }
  static std::optional<internal::MetricPoint> find(const Snapshots& snapshots, const std::string& name,
                                                   LabelList labels) {
    std::sort(labels.begin(), labels.end());
    for (const auto& snapshot : snapshots) {
      if (snapshot.info.name != name) continue;
      for (const auto& point : snapshot.points) {
        if (point.labels == labels) return point;
      }
    }
    return std::nullopt;
  }

  const bool switched_on_;
  Snapshots before_;
};

}  // namespace tuft::telemetry::testing
