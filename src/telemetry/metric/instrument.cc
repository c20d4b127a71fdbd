#include "telemetry/instrument.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "telemetry/instruments/health.h"
#include "telemetry/instruments/resources.h"
#include "telemetry/log.h"
#include "telemetry/log/log_line.h"
#include "telemetry/metric/instrument_fork.h"
#include "telemetry/metric/metric_store.h"
#include "telemetry/record/recording.h"

namespace tuft::telemetry {

using internal::kSeriesMax;
using internal::LabelStrings;

// What only histograms have.
struct HistogramParts {
  explicit HistogramParts(size_t buckets) : counts(buckets), exemplars(buckets) {}

  std::vector<std::atomic<uint64_t>> counts;
  internal::Exemplars exemplars;
  internal::ExponentialHistogram exponential;
};

// Aligned so that two hot series never share a cache line.
struct alignas(64) Series {
  Series(InstrumentState* owner, LabelStrings label_strings, size_t buckets)
      : instrument(owner), labels(std::move(label_strings)) {
    if (buckets > 0) histogram.emplace(buckets);
  }

  InstrumentState* const instrument;
  std::atomic<int64_t> value{0};
  std::atomic<double> sum{0};        // of a histogram; the value of a gauge
  std::atomic<bool> present{false};  // gauges: between set() and clear()
  std::atomic<double> min{std::numeric_limits<double>::infinity()};
  std::atomic<double> max{-std::numeric_limits<double>::infinity()};
  std::optional<HistogramParts> histogram;
  const LabelStrings labels;
};

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

struct InstrumentState {
  explicit InstrumentState(InstrumentInfo instrument_info) : info(std::move(instrument_info)) {}

  const InstrumentInfo info;

  Mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Series>, StringHash, std::equal_to<>> series TUFT_GUARDED_BY(mutex);

  // Locked while the callback runs, so that set_callback() can promise that the old one has ended. This module takes no
  // other lock under it.
  Mutex callback_mutex;
  Observable::Callback callback TUFT_GUARDED_BY(callback_mutex);
};

namespace {

struct Registry {
  Mutex mutex;
  std::map<std::string, InstrumentState*, std::less<>> instruments TUFT_GUARDED_BY(mutex);
};

// Leaked with its contents, because bound instruments are used until the last thread ends.
Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

InstrumentState* register_instrument(InstrumentSpec spec, InstrumentKind kind) {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  auto found = all.instruments.find(spec.name);
  if (found == all.instruments.end()) {
    InstrumentInfo info{.name = std::string(spec.name),
                        .kind = kind,
                        .unit = std::string(spec.unit),
                        .description = std::string(spec.description),
                        .labels = {spec.labels.begin(), spec.labels.end()},
                        .bounds = std::move(spec.bounds),
                        .recorded_by = spec.recorded_by,
                        .scope = std::string(spec.scope)};
    auto* state = new InstrumentState(std::move(info));
    found = all.instruments.emplace(state->info.name, state).first;
  }
  return found->second;
}

// Writes the label set in canonical order, as a key, into `key`, whose memory is reused.
void make_key(Labels labels, std::string& key) {
  constexpr size_t kLabelsMax = 16;
  std::array<const Label*, kLabelsMax> sorted{};
  size_t count = 0;
  for (const Label& label : labels) {
    if (count < kLabelsMax) sorted[count++] = &label;
  }
  std::sort(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(count),
            [](const Label* a, const Label* b) { return a->first < b->first; });
  key.clear();
  for (size_t i = 0; i < count; ++i) {
    key.append(sorted[i]->first);
    key.push_back('\0');
    key.append(sorted[i]->second);
    key.push_back('\0');
  }
}

LabelStrings label_strings(Labels labels) {
  LabelStrings out;
  for (const auto& [key, value] : labels) out.emplace_back(key, value);
  std::sort(out.begin(), out.end());
  return out;
}

// A label that the instrument's definition does not list surprises readers, and ids as values grow without limit. This
// is a programmer's mistake, but no request may fail for it.
bool has_unknown_key(const InstrumentInfo& info, Labels labels) {
  return std::any_of(labels.begin(), labels.end(), [&](const Label& label) {
    return std::find(info.labels.begin(), info.labels.end(), label.first) == info.labels.end();
  });
}

void report_unknown_key(const InstrumentInfo& info) {
  log_error("telemetry.unknown_label", "a metric was recorded with a label that its definition does not list",
            {{"instrument", info.name}});
}

size_t bucket_count(const InstrumentState& instrument) {
  return instrument.info.kind == InstrumentKind::kHistogram ? instrument.info.bounds.size() + 1 : 0;
}

Series* series_of(InstrumentState& instrument, Labels labels) {
  thread_local std::string key;
  make_key(labels, key);
  Series* result = nullptr;
  {
    MutexLock lock(instrument.mutex);
    const auto found = instrument.series.find(std::string_view(key));
    if (found != instrument.series.end()) return found->second.get();
    if (instrument.series.size() < kSeriesMax) {
      auto added = std::make_unique<Series>(&instrument, label_strings(labels), bucket_count(instrument));
      result = instrument.series.emplace(key, std::move(added)).first->second.get();
    }
  }
  if (result != nullptr) {
    if (has_unknown_key(instrument.info, labels)) report_unknown_key(instrument.info);
    return result;
  }
  if (instrument.info.name != "tuft.telemetry.series.overflowed")
    internal::health_metrics().series_overflowed.add(1, {{"instrument", instrument.info.name}});
  MutexLock lock(instrument.mutex);
  auto& overflow = instrument.series[std::string(internal::kOverflowLabel)];
  if (!overflow)
    overflow = std::make_unique<Series>(&instrument, LabelStrings{{std::string(internal::kOverflowLabel), "true"}},
                                        bucket_count(instrument));
  return overflow.get();
}

void count_nonfinite(const InstrumentState& instrument) {
  internal::health_metrics().nonfinite.add(1, {{"instrument", instrument.info.name}});
}

void add_to(std::atomic<double>& sum, double value) {
  double seen = sum.load(std::memory_order_relaxed);
  while (!sum.compare_exchange_weak(seen, seen + value, std::memory_order_relaxed)) {
  }
}

template <typename Better>
void keep_extreme(std::atomic<double>& extreme, double value, Better better) {
  double seen = extreme.load(std::memory_order_relaxed);
  while (better(value, seen) && !extreme.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

void BoundCounter::add(int64_t value) const {
  if (series_ == nullptr || !internal::metrics_recording()) return;
  if (value < 0 && series_->instrument->info.kind == InstrumentKind::kCounter) return;
  series_->value.fetch_add(value, std::memory_order_relaxed);
}

void BoundHistogram::record(double value) const {
  record(value, 1);
}

void BoundHistogram::record(double value, uint64_t count) const {
  if (series_ == nullptr || !internal::metrics_recording()) return;
  if (!std::isfinite(value)) [[unlikely]] {
    count_nonfinite(*series_->instrument);
    return;
  }
  const auto& bounds = series_->instrument->info.bounds;
  const auto bucket = static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
  HistogramParts& histogram = *series_->histogram;
  histogram.counts[bucket].fetch_add(count, std::memory_order_relaxed);
  histogram.exemplars.offer(bucket, value);
  if (internal::g_exponential_histograms.load(std::memory_order_relaxed)) histogram.exponential.add(value, count);
  add_to(series_->sum, value * static_cast<double>(count));
  keep_extreme(series_->min, value, std::less<>{});
  keep_extreme(series_->max, value, std::greater<>{});
}

void BoundGauge::set(double value) const {
  if (series_ == nullptr || !internal::metrics_recording()) return;
  if (!std::isfinite(value)) return count_nonfinite(*series_->instrument);
  series_->sum.store(value, std::memory_order_relaxed);
  series_->present.store(true, std::memory_order_release);
}

void BoundGauge::clear() const {
  if (series_ != nullptr) series_->present.store(false, std::memory_order_relaxed);
}

Counter::Counter(InstrumentSpec spec) : state_(register_instrument(std::move(spec), InstrumentKind::kCounter)) {}

BoundCounter Counter::with(Labels labels) const {
  return BoundCounter(series_of(*state_, labels));
}

void Counter::add(int64_t value, Labels labels) const {
  if (internal::metrics_recording()) with(labels).add(value);
}

UpDownCounter::UpDownCounter(InstrumentSpec spec)
    : state_(register_instrument(std::move(spec), InstrumentKind::kUpDownCounter)) {}

BoundCounter UpDownCounter::with(Labels labels) const {
  return BoundCounter(series_of(*state_, labels));
}

void UpDownCounter::add(int64_t value, Labels labels) const {
  if (internal::metrics_recording()) with(labels).add(value);
}

Histogram::Histogram(InstrumentSpec spec) : state_(register_instrument(std::move(spec), InstrumentKind::kHistogram)) {}

BoundHistogram Histogram::with(Labels labels) const {
  return BoundHistogram(series_of(*state_, labels));
}

void Histogram::record(double value, Labels labels) const {
  if (internal::metrics_recording()) with(labels).record(value);
}

Gauge::Gauge(InstrumentSpec spec) : state_(register_instrument(std::move(spec), InstrumentKind::kGauge)) {}

BoundGauge Gauge::with(Labels labels) const {
  return BoundGauge(series_of(*state_, labels));
}

void Gauge::set(double value, Labels labels) const {
  if (internal::metrics_recording()) with(labels).set(value);
}

void Observable::set_callback(Callback callback) const {
  MutexLock lock(state_->callback_mutex);
  state_->callback = std::move(callback);
}

ObservableGauge::ObservableGauge(InstrumentSpec spec)
    : Observable(register_instrument(std::move(spec), InstrumentKind::kObservableGauge)) {}

ObservableCounter::ObservableCounter(InstrumentSpec spec)
    : Observable(register_instrument(std::move(spec), InstrumentKind::kObservableCounter)) {}

std::string_view instrument_kind_name(InstrumentKind kind) {
  switch (kind) {
    case InstrumentKind::kCounter:
      return "Counter";
    case InstrumentKind::kUpDownCounter:
      return "UpDownCounter";
    case InstrumentKind::kHistogram:
      return "Histogram";
    case InstrumentKind::kGauge:
      return "Gauge";
    case InstrumentKind::kObservableGauge:
      return "ObservableGauge";
    case InstrumentKind::kObservableCounter:
      return "ObservableCounter";
  }
  return "Counter";
}

namespace {

std::vector<InstrumentState*> all_instruments() {
  internal::health_metrics();
  internal::resource_metrics();
  Registry& all = registry();
  MutexLock lock(all.mutex);
  std::vector<InstrumentState*> out;
  out.reserve(all.instruments.size());
  for (const auto& [name, state] : all.instruments) out.push_back(state);
  return out;
}

void read_histogram(const HistogramParts& histogram, internal::MetricPoint& point) {
  point.counts.reserve(histogram.counts.size());
  for (const auto& count : histogram.counts) {
    point.counts.push_back(count.load(std::memory_order_relaxed));
    point.count += point.counts.back();
  }
  point.exemplars = histogram.exemplars.read();
  if (internal::g_exponential_histograms.load(std::memory_order_relaxed))
    point.exponential = histogram.exponential.read();
}

internal::MetricPoint read_series(const Series& series) {
  internal::MetricPoint point;
  point.labels = series.labels;
  point.value = series.value.load(std::memory_order_relaxed);
  if (series.histogram) read_histogram(*series.histogram, point);
  point.sum = series.sum.load(std::memory_order_relaxed);
  point.number = point.sum;
  point.min = series.min.load(std::memory_order_relaxed);
  point.max = series.max.load(std::memory_order_relaxed);
  return point;
}

std::vector<internal::MetricPoint> read_observable(InstrumentState& instrument) {
  std::map<LabelStrings, double> observed;
  int64_t nonfinite = 0;
  int64_t overflowed = 0;
  const Observable::Observe observe = [&](double value, Labels labels) {
    if (!std::isfinite(value)) {
      ++nonfinite;
      return;
    }
    LabelStrings key = label_strings(labels);
    if (observed.size() >= kSeriesMax && !observed.contains(key)) {
      ++overflowed;
      return;
    }
    observed[std::move(key)] = value;
  };
  {
    MutexLock lock(instrument.callback_mutex);
    if (instrument.callback) instrument.callback(observe);
  }
  const std::string& name = instrument.info.name;
  if (nonfinite > 0) internal::health_metrics().nonfinite.add(nonfinite, {{"instrument", name}});
  if (overflowed > 0) internal::health_metrics().series_overflowed.add(overflowed, {{"instrument", name}});
  std::vector<internal::MetricPoint> points;
  for (const auto& [labels, value] : observed) {
    points.emplace_back();
    points.back().labels = labels;
    points.back().number = value;
  }
  return points;
}

std::vector<internal::MetricPoint> read_instrument(InstrumentState& instrument) {
  const InstrumentKind kind = instrument.info.kind;
  if (kind == InstrumentKind::kObservableGauge || kind == InstrumentKind::kObservableCounter)
    return read_observable(instrument);
  std::vector<internal::MetricPoint> points;
  MutexLock lock(instrument.mutex);
  for (const auto& [key, series] : instrument.series) {
    if (kind == InstrumentKind::kGauge && !series->present.load(std::memory_order_acquire)) continue;
    points.push_back(read_series(*series));
  }
  return points;
}

}  // namespace

std::vector<double> bounds_operation() {
  return {.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10};
}

std::vector<InstrumentInfo> instrument_catalogue() {
  std::vector<InstrumentInfo> out;
  for (const InstrumentState* instrument : all_instruments()) out.push_back(instrument->info);
  return out;
}

std::vector<internal::MetricSnapshot> internal::collect_metrics() {
  constexpr std::string_view kSeriesGauge = "tuft.telemetry.series";
  count_dropped_log_lines();
  std::vector<MetricSnapshot> out;
  size_t series = 0;
  InstrumentState* series_gauge = nullptr;
  for (InstrumentState* instrument : all_instruments()) {
    if (instrument->info.name == kSeriesGauge) series_gauge = instrument;
    auto points = read_instrument(*instrument);
    series += points.size();
    if (!points.empty()) out.push_back({instrument->info, std::move(points)});
  }
  end_exemplar_round();
  if (!metrics_recording() || series_gauge == nullptr) return out;
  // The gauge counts its own series too.
  out.push_back({series_gauge->info, {{.number = static_cast<double>(series + 1)}}});
  return out;
}

void internal::lock_instruments() TUFT_TSA(no_thread_safety_analysis) {
  Registry& all = registry();
  all.mutex.lock();
  for (const auto& [name, instrument] : all.instruments) instrument->mutex.lock();
}

void internal::unlock_instruments() TUFT_TSA(no_thread_safety_analysis) {
  Registry& all = registry();
  for (const auto& [name, instrument] : all.instruments) instrument->mutex.unlock();
  all.mutex.unlock();
}

void internal::reset_instruments_in_child() TUFT_TSA(no_thread_safety_analysis) {
  for (const auto& [name, instrument] : registry().instruments) {
    // A callback may have been running, so neither the lock nor the function can be used. Both are leaked.
    new (&instrument->callback_mutex) Mutex;
    new (&instrument->callback) Observable::Callback;
    for (const auto& [key, series] : instrument->series) {
      series->value = 0;
      series->sum = 0;
      series->present = false;
      series->min = std::numeric_limits<double>::infinity();
      series->max = -std::numeric_limits<double>::infinity();
      if (!series->histogram) continue;
      for (auto& count : series->histogram->counts) count = 0;
      series->histogram->exemplars.reset();
      series->histogram->exponential.reset();
    }
  }
  unlock_instruments();
}

}  // namespace tuft::telemetry
