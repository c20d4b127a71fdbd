// Reads the values of all instruments, for exporters. Internal to telemetry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/instrument.h"
#include "telemetry/metric/exemplar.h"
#include "telemetry/metric/exponential.h"

namespace tuft::telemetry::internal {

using LabelStrings = std::vector<std::pair<std::string, std::string>>;  // sorted by key

inline constexpr size_t kSeriesMax = 256;
inline constexpr std::string_view kOverflowLabel = "otel.metric.overflow";

struct MetricPoint {
  LabelStrings labels = {};
  int64_t value = 0;                  // counters
  double number = 0;                  // gauges and observable counters
  std::vector<uint64_t> counts = {};  // histograms: bounds + 1
  uint64_t count = 0;
  double sum = 0;
  double min = 0;  // meaningless while count is 0
  double max = 0;
  std::vector<Exemplar> exemplars = {};              // histograms, by their explicit buckets
  std::optional<ExponentialPoint> exponential = {};  // histograms, if settings ask for it
};

struct MetricSnapshot {
  InstrumentInfo info;
  std::vector<MetricPoint> points;
};

// Returns the cumulative values since the process began and runs the callbacks of observable instruments. Leaves out
// instruments without a point. Thread-safe; the sum of a histogram that is being recorded may be one record behind its
// counts. Ends the round of exemplars.
std::vector<MetricSnapshot> collect_metrics();

}  // namespace tuft::telemetry::internal
