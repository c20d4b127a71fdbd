#include "telemetry_store/metric_series.h"

#include <algorithm>
#include <cmath>

#include "telemetry_store/bytes.h"

namespace tuft::telemetry_store::internal {
namespace {

// A longer silence is a gap.
constexpr Nanos kGapMin = 90 * kSecond;
// After a silence of more than an interval between reports can be, a counter was not just slow to report.
constexpr Nanos kContinuesMax = 3600 * kSecond;
constexpr size_t kIntervalsMax = 64;
constexpr size_t kExemplarsMax = 8;

std::string pack(const std::vector<uint64_t>& counts) {
  ByteWriter writer;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) writer.count(i).count(counts[i]);
  }
  return writer.take();
}

}  // namespace

void SeriesRing::cover(Nanos from, Nanos until) {
  if (!covered_.empty() && from - covered_.back().second <= kGapMin) {
    covered_.back().second = std::max(covered_.back().second, until);
    return;
  }
  covered_.emplace_back(from, until);
  if (covered_.size() > kIntervalsMax) covered_.pop_front();
}

Nanos SeriesRing::covered_in(Nanos from, Nanos until) const {
  Nanos covered = 0;
  for (const auto& [begin, end] : covered_) covered += std::max<Nanos>(0, std::min(end, until) - std::max(begin, from));
  return covered;
}

void SeriesRing::add(const PointView& point, bool is_delta, Nanos now, Nanos previous) {
  if (!covered_.empty() && covered_.back().second - now > kGapMin) forget_after(now);
  if (!covered_.empty() && now <= covered_.back().second) return;
  const bool known = has_last_ && now - last_seen() <= kGapMin;
  const Nanos since = known ? last_seen() : since_of(point, is_delta, now, previous);
  if (fine_from_ == 0) fine_from_ = std::min(since, now - 1);
  // The first report covers a moment, so that it is data.
  cover(std::min(since, now - 1), now);
  add_exemplars(point);
  if (!is_gauge()) return add_increment(point, is_delta, now, since);
  const double value = is_delta ? last_value_ + point.value : point.value;
  if (!known || value != last_value_ || fine_.empty()) fine_.push_back({now, now, value, {}});
  last_value_ = value;
  has_last_ = true;
}

Nanos SeriesRing::since_of(const PointView& point, bool is_delta, Nanos now, Nanos previous) const {
  if (previous != 0 && now - previous <= kGapMin) return previous;
  if (is_gauge() || (!has_last_ && !is_delta)) return now;
  // A delta says nothing about the silence before: its series may have had nothing to report.
  const bool continues = !is_delta && now - last_seen() <= kContinuesMax && !was_reset(point);
  return continues ? last_seen() : now - kMinute;
}

bool SeriesRing::was_reset(const PointView& point) const {
  if (kind_ == MetricKind::kCounter && point.value < last_value_) return true;
  for (size_t i = 0; i < std::min(buckets_, last_counts_.size()); ++i) {
    if ((i < point.counts.size() ? point.counts[i] : 0) < last_counts_[i]) return true;
  }
  return false;
}

void SeriesRing::add_increment(const PointView& point, bool is_delta, Nanos now, Nanos since) {
  double value = point.value;
  std::vector<uint64_t> counts = point.counts;
  counts.resize(buckets_);
  last_counts_.resize(buckets_);
  const bool began_before = !has_last_ && since == now;
  if (!is_delta && has_last_ && !was_reset(point)) {
    value -= last_value_;
    for (size_t i = 0; i < buckets_; ++i) counts[i] -= last_counts_[i];
  }
  has_last_ = true;
  last_value_ = point.value;
  last_counts_ = point.counts;
  // Counted before anybody watched: nobody knows when.
  if (began_before && !is_delta) return;
  std::string packed = pack(counts);
  if (value == 0 && packed.empty()) return;
  // The rows before fine_from_ are made.
  fine_.push_back({now, std::min(std::max(since, fine_from_), now - 1), value, std::move(packed)});
}

void SeriesRing::add_exemplars(const PointView& point) {
  for (const ExemplarView& exemplar : point.exemplars) {
    const bool known = std::any_of(exemplars_.begin(), exemplars_.end(), [&](const ExemplarView& other) {
      return other.time == exemplar.time && other.span == exemplar.span && other.value == exemplar.value;
    });
    if (!known) exemplars_.push_back(exemplar);
    if (exemplars_.size() > kExemplarsMax) {
      exemplars_.erase(std::min_element(exemplars_.begin(), exemplars_.end(),
                                        [](const auto& a, const auto& b) { return a.time < b.time; }));
    }
  }
}

std::optional<std::string> SeriesRing::close_minute(Nanos end) {
  if (covered_in(end - kMinute, end) == 0) return std::nullopt;
  Window window;
  if (is_gauge()) {
    window = this->window(end - kMinute, end);
    if (window.covered == 0) return std::nullopt;
  } else {
    // With what was reported too late for the row that it belongs to.
    const Nanos from = std::max(told_until_, fine_from_);
    window.covered = covered_in(std::min(from, end - kMinute), end);
    window.counts.resize(buckets_);
    window_of_increments(from, end, window);
  }
  told_until_ = std::min(end, last_seen());
  closed_until_ = end;
  Minute minute;
  minute.end = end;
  if (is_gauge()) {
    minute.value = static_cast<float>(window.last);
    minute.mean = static_cast<float>(window.mean);
    minute.max = static_cast<float>(window.max);
  } else {
    minute.value = static_cast<float>(kind_ == MetricKind::kHistogram ? window.sum : window.increment);
    std::vector<uint64_t> counts;
    for (const double count : window.counts) counts.push_back(static_cast<uint64_t>(std::llround(count)));
    minute.counts = pack(counts);
  }
  ByteWriter row;
  row.count(static_cast<uint64_t>(window.covered / kMillisecond)).put(minute.value);
  if (is_gauge()) row.put(minute.mean).put(minute.max);
  if (kind_ == MetricKind::kHistogram) row.text(minute.counts);
  if (is_gauge() || minute.value != 0 || !minute.counts.empty()) coarse_.push_back(std::move(minute));
  return row.take();
}

bool SeriesRing::load_minute(Nanos end, std::string_view bytes) {
  ByteReader row(bytes);
  Minute minute;
  minute.end = end;
  constexpr uint64_t kCoveredMax = (kContinuesMax + kMinute) / kMillisecond;
  const auto covered = static_cast<Nanos>(std::min<uint64_t>(row.count(), kCoveredMax)) * kMillisecond;
  minute.value = row.get<float>();
  if (is_gauge()) {
    minute.mean = row.get<float>();
    minute.max = row.get<float>();
  }
  if (kind_ == MetricKind::kHistogram) minute.counts = row.text();
  if (!row.ok() || !std::isfinite(minute.value) || (!coarse_.empty() && coarse_.back().end >= end)) return false;
  cover(end - covered, end);
  if (is_gauge() || minute.value != 0 || !minute.counts.empty()) coarse_.push_back(std::move(minute));
  fine_from_ = closed_until_ = told_until_ = end;
  return true;
}

void SeriesRing::add_counts(const std::string& packed, double part, Window& out) {
  ByteReader reader(packed);
  while (!reader.at_end()) {
    const uint64_t bucket = reader.count();
    const auto count = static_cast<double>(reader.count());
    if (bucket >= out.counts.size()) continue;
    out.counts[bucket] += part * count;
    out.increment += part * count;
  }
}

Window SeriesRing::window(Nanos from, Nanos until) const {
  Window out;
  out.covered = covered_in(from, until);
  if (out.covered == 0) return out;
  if (is_gauge()) {
    window_of_values(from, until, out);
  } else {
    out.counts.resize(buckets_);
    window_of_increments(from, until, out);
  }
  return out;
}

void SeriesRing::window_of_increments(Nanos from, Nanos until, Window& out) const {
  // An increment is spread evenly over the time since the snapshot before.
  const auto add = [&](Nanos begin, Nanos end, Nanos shown_from, double value, const std::string& counts) {
    const Nanos overlap = std::min(end, until) - std::max(begin, shown_from);
    if (overlap <= 0) return;
    const double part = static_cast<double>(overlap) / static_cast<double>(std::max<Nanos>(end - begin, 1));
    if (kind_ == MetricKind::kHistogram) {
      out.sum += part * value;
      add_counts(counts, part, out);
    } else {
      out.increment += part * value;
    }
  };
  const auto ends_before = [](const auto& point, Nanos time) { return point.time <= time; };
  for (auto point = std::lower_bound(fine_.begin(), fine_.end(), from, ends_before);
       point != fine_.end() && point->covers < until; ++point)
    add(point->covers, point->time, std::max(from, fine_from_), point->value, point->counts);
  if (from >= fine_from_) return;
  const auto minute_before = [](const Minute& minute, Nanos time) { return minute.end <= time; };
  for (auto minute = std::lower_bound(coarse_.begin(), coarse_.end(), from, minute_before);
       minute != coarse_.end() && minute->end - kMinute < until && minute->end <= fine_from_; ++minute)
    add(minute->end - kMinute, minute->end, from, minute->value, minute->counts);
}

void SeriesRing::window_of_values(Nanos from, Nanos until, Window& out) const {
  // The parts of the interval in which the series had one value, in order.
  double weighted = 0;
  Nanos weight = 0;
  bool first = true;
  const auto add = [&](Nanos begin, Nanos end, double last, double mean, double max) {
    const Nanos length = std::min(end, until) - std::max(begin, from);
    if (length < 0) return;
    out.last = last;
    out.max = first ? max : std::max(out.max, max);
    first = false;
    weighted += mean * static_cast<double>(length);
    weight += length;
    out.mean = weight == 0 ? mean : weighted / static_cast<double>(weight);
  };
  if (from < fine_from_) {
    const auto minute_before = [](const Minute& minute, Nanos time) { return minute.end <= time; };
    for (auto minute = std::lower_bound(coarse_.begin(), coarse_.end(), from, minute_before);
         minute != coarse_.end() && minute->end - kMinute < until && minute->end <= fine_from_; ++minute)
      add(minute->end - kMinute, minute->end, minute->value, minute->mean, minute->max);
  }
  auto point = std::upper_bound(fine_.begin(), fine_.end(), from,
                                [](Nanos time, const Point& other) { return time < other.time; });
  if (point != fine_.begin()) --point;
  for (; point != fine_.end() && point->time < until; ++point) {
    const auto next = std::next(point);
    const Nanos end = next == fine_.end() ? std::max(last_seen(), point->time) : next->time;
    if (end >= from) add(point->time, end, point->value, point->value, point->value);
  }
  if (first) out.covered = 0;
}

void SeriesRing::forget_after(Nanos now) {
  while (!fine_.empty() && fine_.back().time >= now) fine_.pop_back();
  while (!coarse_.empty() && coarse_.back().end >= now) coarse_.pop_back();
  while (!covered_.empty() && covered_.back().first >= now) covered_.pop_back();
  if (!covered_.empty()) covered_.back().second = std::min(covered_.back().second, now - 1);
  fine_from_ = std::min(fine_from_, now - 1);
  // The minute that the clock shows is open again.
  closed_until_ = std::min(closed_until_, now - now % kMinute);
  told_until_ = std::min(told_until_, now - now % kMinute);
}

void SeriesRing::forget(Nanos fine_before, Nanos coarse_before) {
  // Of a series that ended the last row tells until the end of its minute.
  fine_before = std::min(fine_before, std::max(closed_until_, last_seen()));
  // The row after a silence tells of all of it, so a silence is not cut.
  const auto kept = std::find_if(fine_.begin(), fine_.end(), [&](const Point& at) { return at.time > fine_before; });
  if (kept != fine_.end() && !is_gauge())
    fine_before = std::min(fine_before, (kept->covers + kMinute - 1) / kMinute * kMinute);
  // The last point of a gauge is what it still is.
  while (!fine_.empty() && fine_.front().time <= fine_before && (!is_gauge() || fine_.size() > 1)) fine_.pop_front();
  fine_from_ = std::max(fine_from_, fine_before);
  while (!coarse_.empty() && coarse_.front().end <= coarse_before) coarse_.pop_front();
  while (covered_.size() > 1 && covered_.front().second < coarse_before) covered_.pop_front();
}

size_t SeriesRing::memory_bytes() const {
  // Every deque has a block of at least 512 bytes.
  size_t bytes = sizeof *this + 4 * 512 + last_counts_.capacity() * sizeof(uint64_t) +
                 exemplars_.size() * sizeof(ExemplarView) + fine_.size() * sizeof(Point) +
                 coarse_.size() * sizeof(Minute);
  const auto extra = [](const std::string& text) { return text.capacity() > 15 ? text.capacity() : 0; };
  for (const Point& point : fine_) bytes += extra(point.counts);
  for (const Minute& minute : coarse_) bytes += extra(minute.counts);
  return bytes;
}

}  // namespace tuft::telemetry_store::internal
