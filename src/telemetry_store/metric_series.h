// One series of a metric: what changed over the last hour, in full, and over the time before that, by minutes. Internal
// to telemetry_store. Not thread-safe.
//
// Of counters and histograms the increments between snapshots are kept, so that resets of a process are dealt with
// once, and nothing is stored while nothing happens. Of gauges the values are kept when they change. A list of
// intervals says when the series was reported at all.
//
// A cumulative value that continues after a silence of at most an hour tells of the silence, too: it is covered, and
// the increment is spread over it. After a longer one, after a reset and of a delta nobody knows when it was counted:
// it is spread over the last minute, and the silence before stays a gap, as it does for a gauge.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "telemetry_store/metric_reader.h"
#include "telemetry_store/query.h"

namespace tuft::telemetry_store::internal {

inline constexpr Nanos kMinute = 60 * kSecond;  // of a row of a series

// What a series says about an interval.
struct Window {
  Nanos covered = 0;                   // for how much of the interval the series was reported; 0: no data
  double increment = 0;                // of counters; of histograms the number of values
  double sum = 0;                      // of the values of a histogram
  std::vector<double> counts;          // of the buckets of a histogram
  double last = 0, mean = 0, max = 0;  // of gauges
};

class SeriesRing {
 public:
  SeriesRing(MetricKind kind, size_t buckets) : kind_(kind), buckets_(buckets) {}

  // Adds a point of a snapshot. `previous`: the time of the snapshot before from the same process; 0: there was none,
  // so that a cumulative value is only where counting begins. A `now` that is much earlier than the last one means that
  // the clock was set back: then points with later times are forgotten.
  void add(const PointView& point, bool is_delta, Nanos now, Nanos previous);
  // Makes a row of the minute that ends at `end`, and returns it for the file; nothing if the series was not reported.
  std::optional<std::string> close_minute(Nanos end);
  // Adds a row that close_minute() made earlier. Returns false if it is malformed.
  bool load_minute(Nanos end, std::string_view row);

  Window window(Nanos from, Nanos until) const;
  // Forgets points older than these times.
  void forget(Nanos fine_before, Nanos coarse_before);

  Nanos last_seen() const { return covered_.empty() ? 0 : covered_.back().second; }
  size_t memory_bytes() const;
  const std::deque<ExemplarView>& exemplars() const { return exemplars_; }

 private:
  struct Point {
    Nanos time = 0;
    Nanos covers = 0;    // of increments: since when
    double value = 0;    // increment, sum of a histogram, or value of a gauge
    std::string counts;  // of a histogram: pairs of bucket and count
  };
  struct Minute {
    Nanos end = 0;
    float value = 0;  // increment, sum, or last value
    float mean = 0, max = 0;
    std::string counts;
  };

  bool is_gauge() const { return kind_ == MetricKind::kGauge || kind_ == MetricKind::kUpDownCounter; }
  void cover(Nanos from, Nanos until);
  // After the clock was set back: what has a later time would stand in the way of all that comes.
  void forget_after(Nanos now);
  Nanos covered_in(Nanos from, Nanos until) const;
  // Since when a report counts that does not follow another one; `now`: nobody knows.
  Nanos since_of(const PointView& point, bool is_delta, Nanos now, Nanos previous) const;
  bool was_reset(const PointView& point) const;
  void add_increment(const PointView& point, bool is_delta, Nanos now, Nanos since);
  void add_exemplars(const PointView& point);
  void window_of_increments(Nanos from, Nanos until, Window& out) const;
  void window_of_values(Nanos from, Nanos until, Window& out) const;
  static void add_counts(const std::string& packed, double part, Window& out);

  const MetricKind kind_;
  const size_t buckets_;
  // The last cumulative values.
  bool has_last_ = false;
  double last_value_ = 0;
  std::vector<uint64_t> last_counts_;

  std::deque<Point> fine_;
  std::deque<Minute> coarse_;
  Nanos fine_from_ = 0;     // before this time only minutes are kept
  Nanos closed_until_ = 0;  // the end of the last row
  Nanos told_until_ = 0;    // what was counted until then is in rows
  std::deque<std::pair<Nanos, Nanos>> covered_;
  std::deque<ExemplarView> exemplars_;
};

}  // namespace tuft::telemetry_store::internal
