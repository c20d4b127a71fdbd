// Instruments of metrics: counters, histograms and gauges.
//
// Recording to a bound label set costs a few atomic operations; an unbound one costs a look-up of the series as well.
// Label values come from closed sets, and label keys from the list in the spec (another key is logged); ids belong on
// spans and logs. An instrument has at most 256 label sets; further ones are counted and share one series labelled
// otel.metric.overflow=true. Values that are not finite do not enter a series; tuft.telemetry.nonfinite counts them.
// All functions are thread-safe and do nothing while metrics are off.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tuft::telemetry {

using Label = std::pair<std::string_view, std::string_view>;
using Labels = std::initializer_list<Label>;

struct Series;  // one label set of one instrument; lives as long as the process
struct InstrumentState;

// The process that records an instrument.
enum class RecordedBy : uint8_t { kServer, kWorker, kBoth };

struct InstrumentSpec {
  std::string_view name;
  std::string_view unit;  // UCUM, or {thing}
  std::string_view description;
  std::initializer_list<std::string_view> labels = {};  // label keys
  std::vector<double> bounds = {};                      // histograms: inclusive upper bounds
  RecordedBy recorded_by = RecordedBy::kServer;
  std::string_view scope = "tuft";  // the meter
};

// Constructing an instrument with a name that exists already gives the existing instrument; the rest of the spec is
// ignored.

// One series of a Counter or an UpDownCounter. A Counter ignores negative values.
class BoundCounter {
 public:
  BoundCounter() = default;
  void add(int64_t value) const;

 private:
  friend class Counter;
  friend class UpDownCounter;
  explicit BoundCounter(Series* series) : series_(series) {}
  Series* series_ = nullptr;
};

class Counter {
 public:
  explicit Counter(InstrumentSpec spec);
  BoundCounter with(Labels labels) const;
  void add(int64_t value, Labels labels = {}) const;

 private:
  InstrumentState* state_;
};

class UpDownCounter {
 public:
  explicit UpDownCounter(InstrumentSpec spec);
  BoundCounter with(Labels labels) const;
  void add(int64_t value, Labels labels = {}) const;

 private:
  InstrumentState* state_;
};

class BoundHistogram {
 public:
  BoundHistogram() = default;
  void record(double value) const;
  // Records the same value `count` times, for instance the latency of tokens that arrive together.
  void record(double value, uint64_t count) const;

 private:
  friend class Histogram;
  explicit BoundHistogram(Series* series) : series_(series) {}
  Series* series_ = nullptr;
};

class Histogram {
 public:
  explicit Histogram(InstrumentSpec spec);
  BoundHistogram with(Labels labels) const;
  void record(double value, Labels labels = {}) const;

 private:
  InstrumentState* state_;
};

class BoundGauge {
 public:
  BoundGauge() = default;
  void set(double value) const;
  // Removes the series until the next set(), so that an outdated value is not exported.
  void clear() const;

 private:
  friend class Gauge;
  explicit BoundGauge(Series* series) : series_(series) {}
  Series* series_ = nullptr;
};

// Reports the value that was set last. For a value that can be read at any time, prefer an ObservableGauge.
class Gauge {
 public:
  explicit Gauge(InstrumentSpec spec);
  BoundGauge with(Labels labels) const;
  void set(double value, Labels labels = {}) const;

 private:
  InstrumentState* state_;
};

// Reports values when metrics are collected. The callback runs on a telemetry thread: it must be quick and must not
// block. It reports through `observe(value, labels)`; a series that it does not report is not exported.
class Observable {
 public:
  using Observe = std::function<void(double value, Labels labels)>;
  using Callback = std::function<void(const Observe& observe)>;
  // Replaces the callback; an empty one removes it. When this returns, the previous callback is not running any more.
  // Must not be called from inside a callback.
  void set_callback(Callback callback) const;

 protected:
  explicit Observable(InstrumentState* state) : state_(state) {}

 private:
  InstrumentState* state_;
};

class ObservableGauge : public Observable {
 public:
  explicit ObservableGauge(InstrumentSpec spec);
};

// Reports totals that never decrease, such as the process' CPU time.
class ObservableCounter : public Observable {
 public:
  explicit ObservableCounter(InstrumentSpec spec);
};

enum class InstrumentKind : uint8_t {
  kCounter,
  kUpDownCounter,
  kHistogram,
  kGauge,
  kObservableGauge,
  kObservableCounter
};

// Returns "Counter", "UpDownCounter", "Histogram", "Gauge", "ObservableGauge" or "ObservableCounter".
std::string_view instrument_kind_name(InstrumentKind kind);

struct InstrumentInfo {
  std::string name;
  InstrumentKind kind = InstrumentKind::kCounter;
  std::string unit;
  std::string description;
  std::vector<std::string> labels;
  std::vector<double> bounds;
  RecordedBy recorded_by = RecordedBy::kServer;
  std::string scope;
};

// Returns every instrument that the process has made so far, sorted by name, including the library's own.
std::vector<InstrumentInfo> instrument_catalogue();

// Returns bucket bounds in seconds, 100 us .. 10 s, for one operation on a file, a store or a network.
std::vector<double> bounds_operation();

}  // namespace tuft::telemetry
