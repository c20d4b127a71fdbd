// The kinds of instruments: counters, histograms, gauges. The product's own stand in metrics.h.
//
// Recording is a few atomics where the label set was bound before, and a look-up of the series where it was not. Labels
// come from closed sets and from the keys that the spec lists (another key is logged); ids belong on spans and logs. At
// most 256 label sets an instrument; what is over goes into one series labelled otel.metric.overflow=true and is
// counted. Values that are not finite never enter a series; they are counted in tuft.telemetry.nonfinite. All of it is
// thread-safe and does nothing while metrics are off.
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

// Which process records an instrument.
enum class RecordedBy : uint8_t { kServer, kWorker, kBoth };

struct InstrumentSpec {
  std::string_view name;
  std::string_view unit;  // UCUM, or {thing}
  std::string_view description;
  std::initializer_list<std::string_view> labels = {};  // the keys that records may carry
  std::vector<double> bounds = {};                      // histograms: upper bounds, inclusive
  RecordedBy recorded_by = RecordedBy::kServer;
  std::string_view scope = "tuft";  // the meter
};

// A name that is registered already gives the instrument that exists, whatever else the spec says.

class BoundCounter {  // also of an UpDownCounter: only that one takes negative values, the other ignores them
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
  // The same value `count` times, e.g. the latency of tokens that arrive together.
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
  // Takes the series away until it is set again: a value nobody keeps up to date is worse than none.
  void clear() const;

 private:
  friend class Gauge;
  explicit BoundGauge(Series* series) : series_(series) {}
  Series* series_ = nullptr;
};

// The last value set. For what is known when it happens; what can be asked for is better an ObservableGauge.
class Gauge {
 public:
  explicit Gauge(InstrumentSpec spec);
  BoundGauge with(Labels labels) const;
  void set(double value, Labels labels = {}) const;

 private:
  InstrumentState* state_;
};

// Read when metrics are collected, on a telemetry thread: the callback must be quick, must not block, and reports
// through `observe(value, labels)`. What it does not report is gone from the export.
class Observable {
 public:
  using Observe = std::function<void(double value, Labels labels)>;
  using Callback = std::function<void(const Observe& observe)>;
  // One callback at a time; an empty one takes it away. When this returns, the previous one is not running any more.
  // Not to be called from inside a callback.
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

// Reports totals that only grow, such as the CPU time of the process.
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

// "Counter", "UpDownCounter", "Histogram", "Gauge", "ObservableGauge", "ObservableCounter".
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

// Every instrument of the process, sorted by name; those of Metrics are always among them.
std::vector<InstrumentInfo> instrument_catalogue();

// Bucket bounds, by what they measure (seconds unless named otherwise).
std::vector<double> bounds_http();
std::vector<double> bounds_wait();
std::vector<double> bounds_request();
std::vector<double> bounds_step();
std::vector<double> bounds_operation();
std::vector<double> bounds_first_token();
std::vector<double> bounds_inter_token();
std::vector<double> bounds_gen_ai_request();
std::vector<double> bounds_tokens();
std::vector<double> bounds_tokens_per_second();
std::vector<double> bounds_bytes();       // of files: 64 KiB .. 64 GiB
std::vector<double> bounds_body_bytes();  // of HTTP bodies: 64 B .. 64 MiB
std::vector<double> bounds_fraction();
std::vector<double> bounds_count();
std::vector<double> bounds_norm();
std::vector<double> bounds_loss();
// Those of Transformers' continuous batching (milliseconds, percent).
std::vector<double> bounds_ttft_milliseconds();
std::vector<double> bounds_latency_milliseconds();
std::vector<double> bounds_percent();

}  // namespace tuft::telemetry
