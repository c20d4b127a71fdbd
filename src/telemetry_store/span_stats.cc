// Durations and series over time of the spans that meet a filter.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/selection.h"
#include "telemetry_store/span_query.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr double kNoSpans = std::numeric_limits<double>::quiet_NaN();
// Of one answer; see kSpanSeriesQueryBytes.
constexpr size_t kSpansOfSeriesMax = size_t{8} << 20;
constexpr size_t kSumsMax = 1'000'000;
constexpr size_t kGroupsSeenMax = 100'000;

// Four to each decade, from 10 us to 1,000 s.
std::vector<Nanos> duration_bounds() {
  std::vector<Nanos> bounds;
  for (Nanos decade = 10 * kMicrosecond; decade < 1000 * kSecond; decade *= 10) {
    for (const double part : {1.0, 1.8, 3.2, 5.6})
      bounds.push_back(static_cast<Nanos>(std::llround(part * static_cast<double>(decade))));
  }
  bounds.push_back(1000 * kSecond);
  return bounds;
}

// Calls `visit` for the selected rows of each segment.
template <typename Visit>
Status visit_segments(const Segments& segments, const Conditions& conditions, const Deadline& deadline,
                      const Visit& visit) {
  for (const auto& segment : segments) {
    if (!may_match(*segment, Table::kSpans, conditions)) continue;
    TUFT_TRY(deadline.check());
    Rows rows(segment, Table::kSpans);
    TUFT_ASSIGN(const std::vector<uint32_t> selected, select_rows(rows, conditions, deadline));
    if (!selected.empty()) TUFT_TRY(visit(rows, selected));
  }
  return {};
}

bool is_quantile(SpanFunction function) {
  return function == SpanFunction::kP50 || function == SpanFunction::kP95 || function == SpanFunction::kP99;
}

// A span in the cell of its group and step. Only quantiles need each span.
struct Sample {
  uint32_t cell = 0;
  float seconds = 0;
};

// The spans of a cell.
struct Sum {
  uint64_t spans = 0;
  double seconds = 0;
};

static_assert(kSpansOfSeriesMax * sizeof(Sample) * 3 / 2 <= static_cast<size_t>(kSpanSeriesQueryBytes));
static_assert(kSumsMax * (sizeof(Sum) + 4 * sizeof(void*)) <= static_cast<size_t>(kSpanSeriesQueryBytes));

class SeriesBuilder {
 public:
  SeriesBuilder(SpanFunction function, std::string_view by, Nanos start, Nanos step, size_t steps)
      : function_(function), by_(by), start_(start), step_(step), steps_(steps) {}

  Status add(Rows& rows, const std::vector<uint32_t>& selected) {
    std::unordered_map<uint32_t, uint32_t> groups;  // by the number in this segment
    for (const uint32_t row : selected) {
      TUFT_ASSIGN(const uint32_t group, group_of(rows, row, groups));
      ++spans_[group];
      if (function_ == SpanFunction::kErrors && (rows.flags(row) & span_flag::kFailed) == 0) continue;
      const auto step = static_cast<uint32_t>((rows.time(row) - start_) / step_);
      if (step >= steps_) continue;
      TUFT_TRY(add(static_cast<uint32_t>(group * steps_ + step), to_seconds(rows.duration(row))));
    }
    return {};
  }

  SpanSeries take() {
    SpanSeries result{.start = start_, .step = step_, .series = {}};
    // The groups with most spans.
    std::vector<uint32_t> order(names_.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return spans_[a] != spans_[b] ? spans_[a] > spans_[b] : names_[a] < names_[b];
    });
    if (order.size() > kGroupsMax) order.resize(kGroupsMax);
    std::sort(samples_.begin(), samples_.end(), [](const Sample& a, const Sample& b) { return a.cell < b.cell; });
    for (const uint32_t group : order) result.series.emplace_back(names_[group], points_of(group));
    return result;
  }

 private:
  Status add(uint32_t cell, double seconds) {
    if (is_quantile(function_)) {
      if (samples_.size() >= kSpansOfSeriesMax) return query_too_large("more than eight million spans meet the filter");
      samples_.push_back({cell, static_cast<float>(seconds)});
      return {};
    }
    Sum& sum = sums_[cell];
    if (sums_.size() > kSumsMax) return query_too_large("the series have more than a million points");
    ++sum.spans;
    sum.seconds += seconds;
    return {};
  }

  Result<uint32_t> group_of(Rows& rows, uint32_t row, std::unordered_map<uint32_t, uint32_t>& groups) {
    uint32_t number = 0;
    if (by_ == "name") number = rows.narrow(Column::kName, row);
    if (by_ == "operation") number = rows.narrow(Column::kOperation, row);
    if (by_ == "base_model") number = rows.narrow(Column::kBaseModel, row);
    if (by_ == "user") number = rows.narrow(Column::kContext, row);
    const auto known = groups.find(number);
    if (known != groups.end()) return known->second;
    std::string name;
    if (by_ == "user") {
      name = rows.context(row).owner;
    } else if (!by_.empty()) {
      name = clean_text(rows.strings().text(number), kNameMax);
    }
    const auto [found, added] = numbers_.try_emplace(name, static_cast<uint32_t>(names_.size()));
    if (added) {
      if (names_.size() >= kGroupsSeenMax) return query_too_large("the spans have more than 100,000 groups");
      names_.push_back(name);
      spans_.push_back(0);
    }
    groups.emplace(number, found->second);
    return found->second;
  }

  std::vector<double> points_of(uint32_t group) {
    if (is_quantile(function_)) return quantiles_of(group);
    std::vector<double> points(steps_, function_ == SpanFunction::kMean ? kNoSpans : 0.0);
    for (size_t step = 0; step < steps_; ++step) {
      const auto found = sums_.find(static_cast<uint32_t>(group * steps_ + step));
      if (found != sums_.end()) points[step] = value_of(found->second);
    }
    return points;
  }

  double value_of(const Sum& sum) const {
    const auto count = static_cast<double>(sum.spans);
    if (function_ == SpanFunction::kRate) return count / to_seconds(step_);
    if (function_ == SpanFunction::kBusy) return sum.seconds / to_seconds(step_);
    return function_ == SpanFunction::kMean ? sum.seconds / count : count;
  }

  std::vector<double> quantiles_of(uint32_t group) {
    const double part = function_ == SpanFunction::kP50 ? 0.5 : function_ == SpanFunction::kP95 ? 0.95 : 0.99;
    std::vector<double> points(steps_, kNoSpans);
    const auto by_cell = [](const Sample& sample, uint32_t cell) { return sample.cell < cell; };
    auto at = std::lower_bound(samples_.begin(), samples_.end(), static_cast<uint32_t>(group * steps_), by_cell);
    for (size_t step = 0; step < steps_; ++step) {
      const auto begin = at;
      while (at != samples_.end() && at->cell == group * steps_ + step) ++at;
      if (begin != at) points[step] = quantile(begin, at, part);
    }
    return points;
  }

  // The smallest duration that at least this part of the spans does not exceed.
  static double quantile(std::vector<Sample>::iterator begin, std::vector<Sample>::iterator end, double part) {
    const auto rank = static_cast<ptrdiff_t>(std::ceil(part * static_cast<double>(end - begin))) - 1;
    const auto at = begin + std::max<ptrdiff_t>(0, rank);
    std::nth_element(begin, at, end, [](const Sample& a, const Sample& b) { return a.seconds < b.seconds; });
    return at->seconds;
  }

  static constexpr size_t kNameMax = 512;

  const SpanFunction function_;
  const std::string_view by_;
  const Nanos start_;
  const Nanos step_;
  const size_t steps_;
  std::map<std::string, uint32_t> numbers_;
  std::vector<std::string> names_;
  std::vector<uint64_t> spans_;
  std::vector<Sample> samples_;             // of quantiles
  std::unordered_map<uint32_t, Sum> sums_;  // by cell, of the other functions
};

}  // namespace

Result<DurationHistogram> find_durations(const Segments& segments, const Viewer& viewer, const Filter& filter,
                                         const Clock& clock) {
  TUFT_TRY(check_filter(filter));
  const Deadline deadline(clock);
  DurationHistogram histogram;
  histogram.bounds = duration_bounds();
  histogram.counts.resize(histogram.bounds.size() + 1);
  histogram.failed.resize(histogram.bounds.size() + 1);
  TUFT_TRY(visit_segments(segments, conditions_of_spans(viewer, filter), deadline,
                          [&](Rows& rows, const std::vector<uint32_t>& selected) -> Status {
                            for (const uint32_t row : selected) {
                              const auto bound = std::lower_bound(histogram.bounds.begin(), histogram.bounds.end(),
                                                                  rows.duration(row));
                              const auto bucket = static_cast<size_t>(bound - histogram.bounds.begin());
                              ++histogram.counts[bucket];
                              if ((rows.flags(row) & span_flag::kFailed) != 0) ++histogram.failed[bucket];
                            }
                            return {};
                          }));
  return histogram;
}

Result<SpanSeries> find_span_series(const Segments& segments, const Viewer& viewer, const Filter& filter,
                                    SpanFunction function, std::string_view by, Nanos step, const Clock& clock) {
  TUFT_TRY(check_filter(filter));
  constexpr std::string_view kGroups[] = {"", "name", "operation", "user", "base_model"};
  if (std::find(std::begin(kGroups), std::end(kGroups), by) == std::end(kGroups))
    return invalid_argument("spans can be grouped by name, operation, user or base_model");
  Filter limited = filter;
  if (limited.time.until == 0) limited.time.until = std::max(clock.wall(), filter.time.from + 1);
  const Nanos length = limited.time.until - limited.time.from;
  if (step <= 0) return invalid_argument("the step of a series must be positive");
  if (length / step >= static_cast<Nanos>(kStepsMax))
    return invalid_argument("the series would have more than " + std::to_string(kStepsMax) +
                            " steps: use a longer step or a shorter time");
  const auto steps = static_cast<size_t>((length + step - 1) / step);
  const Deadline deadline(clock);
  SeriesBuilder builder(function, by, limited.time.from, step, steps);
  TUFT_TRY(
      visit_segments(segments, conditions_of_spans(viewer, limited), deadline,
                     [&](Rows& rows, const std::vector<uint32_t>& selected) { return builder.add(rows, selected); }));
  return builder.take();
}

}  // namespace tuft::telemetry_store::internal
