// Series over time from the rings.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "telemetry_store/metric_rings.h"
#include "telemetry_store/otlp_decoder.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr double kNoData = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kSeriesShownMax = 100;
constexpr size_t kPointsShownMax = 2000;
constexpr size_t kPointsChosen = 300;
constexpr size_t kKeysMax = 8;
constexpr size_t kExemplarsShownMax = 200;
// Windows that one query computes, while nothing is added. One with many buckets counts several times.
constexpr size_t kWindowsMax = 300'000;
constexpr size_t kBucketsOfWindow = 16;
// The memory that an answer takes for a point, as a number and as text, and for a label beside its two strings.
constexpr size_t kShownPointBytes = sizeof(double) + 24;
constexpr size_t kLabelBytes = 160;

bool is_gauge(MetricKind kind) {
  return kind == MetricKind::kGauge || kind == MetricKind::kUpDownCounter;
}

Status check_function(MetricKind kind, MetricFunction function) {
  switch (function) {
    case MetricFunction::kRate:
    case MetricFunction::kIncrease:
      if (!is_gauge(kind)) return {};
      return invalid_argument(
          "rate and increase are functions of counters and histograms; this metric has last, mean "
          "and max");
    case MetricFunction::kLast:
    case MetricFunction::kMean:
    case MetricFunction::kMax:
      if (is_gauge(kind)) return {};
      return invalid_argument(kind == MetricKind::kCounter
                                  ? "last, mean and max are functions of gauges; a counter has rate and increase"
                                  : "last, mean and max are functions of gauges; a histogram has rate, increase, "
                                    "mean_value, p50, p90, p95 and p99");
    default:
      if (kind == MetricKind::kHistogram) return {};
      return invalid_argument("mean_value and quantiles are functions of histograms");
  }
}

// A step from the list that divides minutes, hours and days.
Nanos chosen_step(Nanos length) {
  constexpr std::array<Nanos, 14> kSteps = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200};
  for (const Nanos seconds : kSteps) {
    if (length / (seconds * kSecond) <= static_cast<Nanos>(kPointsChosen)) return seconds * kSecond;
  }
  return (length / static_cast<Nanos>(kPointsChosen) / kSecond + 1) * kSecond;
}

// Linear inside of a bucket. A value in the bucket without a bound counts as the largest bound.
double quantile(const Window& window, const std::vector<double>& bounds, double part) {
  if (bounds.empty() || window.increment <= 0) return kNoData;
  const double rank = part * window.increment;
  double below = 0;
  for (size_t i = 0; i < window.counts.size(); ++i) {
    if (window.counts[i] <= 0 || below + window.counts[i] < rank) {
      below += window.counts[i];
      continue;
    }
    if (i >= bounds.size()) break;
    const double low = i == 0 ? std::min(0.0, bounds[0]) : bounds[i - 1];
    return low + (bounds[i] - low) * (rank - below) / window.counts[i];
  }
  return bounds.back();
}

// Adds the window of a series to the one of its group.
void add_window(const Window& window, Window& sum) {
  sum.covered = std::max(sum.covered, window.covered);
  sum.increment += window.increment;
  sum.sum += window.sum;
  sum.last += window.last;
  sum.mean += window.mean;
  sum.max += window.max;
  sum.counts.resize(std::max(sum.counts.size(), window.counts.size()));
  for (size_t i = 0; i < window.counts.size(); ++i) sum.counts[i] += window.counts[i];
}

size_t bytes_of(const MetricSeries& series) {
  size_t bytes = sizeof series + series.points.size() * kShownPointBytes;
  for (const auto& [key, value] : series.labels) bytes += kLabelBytes + 2 * (key.size() + value.size());
  return bytes;
}

double value_of(const Window& window, MetricFunction function, const std::vector<double>& bounds) {
  if (window.covered == 0) return kNoData;
  switch (function) {
    case MetricFunction::kRate:
      return window.increment / to_seconds(window.covered);
    case MetricFunction::kIncrease:
      return window.increment;
    case MetricFunction::kLast:
      return window.last;
    case MetricFunction::kMean:
      return window.mean;
    case MetricFunction::kMax:
      return window.max;
    case MetricFunction::kMeanValue:
      return window.increment > 0 ? window.sum / window.increment : kNoData;
    case MetricFunction::kP50:
      return quantile(window, bounds, 0.5);
    case MetricFunction::kP90:
      return quantile(window, bounds, 0.9);
    case MetricFunction::kP95:
      return quantile(window, bounds, 0.95);
    case MetricFunction::kP99:
      break;
  }
  return quantile(window, bounds, 0.99);
}

struct Steps {
  Nanos start = 0, step = 0;
  size_t count = 0;
};

Result<Steps> steps_of(const MetricQuery& query, Nanos now) {
  const Nanos until = query.time.until == 0 ? now : query.time.until;
  if (until <= query.time.from || query.time.from < 0)
    return invalid_argument("the time range ends before it begins: `until` must be after `from`");
  if (query.step < 0) return invalid_argument("the step of a series must be positive");
  Steps steps;
  steps.step = query.step != 0 ? query.step : chosen_step(until - query.time.from);
  // Aligned, so that a chart that moves on keeps its points.
  steps.start = query.time.from - query.time.from % steps.step;
  if ((until - steps.start) / steps.step >= static_cast<Nanos>(kPointsShownMax))
    return invalid_argument("the answer would have more than " + std::to_string(kPointsShownMax) +
                            " points: use a longer step or a shorter time");
  steps.count = static_cast<size_t>((until - steps.start + steps.step - 1) / steps.step);
  return steps;
}

}  // namespace

Result<MetricAnswer> MetricRings::query(const Viewer& viewer, const MetricQuery& query, Nanos now) const {
  if (query.by.size() > kKeysMax || query.where.size() > kKeysMax)
    return invalid_argument("a query has at most " + std::to_string(kKeysMax) + " keys in `by` and in `where`");
  TUFT_ASSIGN(const Steps steps, steps_of(query, now));
  MutexLock lock(mutex_);
  const Shown shown = this->shown(viewer, query.name, query.where);
  if (shown.empty()) return not_found("there is no metric of this name and these labels, or none that you may see");
  const Family& family = *shown.front().first;
  TUFT_TRY(check_function(family.kind, query.function));

  std::map<Labels, std::vector<const SeriesRing*>> groups;
  for (const auto& [of, series] : shown) {
    Labels group;
    for (const std::string& key : query.by) {
      const auto label = series->labels.find(key);
      group[key] = label == series->labels.end() ? "" : label->second;
    }
    groups[std::move(group)].push_back(&series->ring);
  }
  MetricAnswer answer;
  answer.metric = info_of(family);
  answer.start = steps.start;
  answer.step = steps.step;
  size_t windows = 0;
  for (const auto& [labels, rings] : groups) {
    windows += rings.size() * steps.count * (1 + family.bounds.size() / kBucketsOfWindow);
    if (answer.series.size() >= kSeriesShownMax || windows > kWindowsMax) {
      answer.truncated = true;
      break;
    }
    MetricSeries& series = answer.series.emplace_back(MetricSeries{labels, {}});
    for (size_t i = 0; i < steps.count; ++i) {
      const Nanos from = steps.start + static_cast<Nanos>(i) * steps.step;
      Window sum;
      for (const SeriesRing* ring : rings) {
        const Window window = ring->window(from, from + steps.step);
        if (window.covered > 0) add_window(window, sum);
      }
      series.points.push_back(value_of(sum, query.function, family.bounds));
    }
    answer.memory_bytes += bytes_of(series);
  }
  return answer;
}

std::vector<MetricExemplar> MetricRings::exemplars(const Viewer& viewer, const MetricQuery& query, Nanos now) const {
  const Nanos until = query.time.until == 0 ? now : query.time.until;
  std::vector<MetricExemplar> found;
  MutexLock lock(mutex_);
  for (const auto& [family, series] : shown(viewer, query.name, query.where)) {
    for (const ExemplarView& exemplar : series->ring.exemplars()) {
      if (exemplar.time < query.time.from || exemplar.time >= until) continue;
      found.push_back({exemplar.time, exemplar.value, hex_of(exemplar.trace), hex_of(exemplar.span), series->labels});
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.time > b.time; });
  if (found.size() > kExemplarsShownMax) found.resize(kExemplarsShownMax);
  return found;
}

}  // namespace tuft::telemetry_store::internal
