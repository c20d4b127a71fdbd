// Metrics. Every instrument of the product stands in Metrics, so that one place shows what is measured;
// docs/telemetry.md is made from it.
//
//   static const BoundCounter created = get_metrics().futures_created.with({{"operation_type", "sample"}});
//   created.add(1);                                                            // hot path: no lock, no allocation
//   get_metrics().futures_created.add(1, {{"operation_type", "sample"}});      // anywhere else: finds the series first
//
// Labels come from closed sets; ids belong on spans and logs. At most 256 label sets an instrument; what is over goes
// into one series labelled otel.metric.overflow=true and is counted. Values that are not finite never enter a series;
// they are counted in tuft.telemetry.nonfinite. All of it is thread-safe and does nothing while telemetry is off.
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

class BoundCounter {  // also of an UpDownCounter: only that one takes negative values, the other ignores them
 public:
  BoundCounter() = default;
  void add(int64_t value) const;

 private:
  friend class Counter;
  explicit BoundCounter(Series* series) : series_(series) {}
  Series* series_ = nullptr;
};

class BoundHistogram {
 public:
  BoundHistogram() = default;
  void record(double value) const;

 private:
  friend class Histogram;
  explicit BoundHistogram(Series* series) : series_(series) {}
  Series* series_ = nullptr;
};

struct InstrumentSpec {
  std::string_view name;
  std::string_view unit;  // UCUM, or {thing}
  std::string_view description;
  std::string_view scope = "tuft";  // the meter
  std::vector<double> bounds = {};  // histograms: upper bounds, inclusive
};

// A name that is registered already gives the instrument that exists, whatever else the spec says.
class Counter {
 public:
  enum class Direction : uint8_t { kUp, kUpAndDown };
  Counter(InstrumentSpec spec, Direction direction);
  BoundCounter with(Labels labels) const;
  void add(int64_t value, Labels labels = {}) const;

 private:
  InstrumentState* state_;
};

class Histogram {
 public:
  explicit Histogram(InstrumentSpec spec);
  BoundHistogram with(Labels labels) const;
  void record(double value, Labels labels = {}) const;

 private:
  InstrumentState* state_;
};

// Read when metrics are collected, on the telemetry thread: the callback must be quick, must not block, and reports
// through `observe(value, labels)`.
class ObservableGauge {
 public:
  using Observe = std::function<void(double value, Labels labels)>;
  using Callback = std::function<void(const Observe& observe)>;
  explicit ObservableGauge(InstrumentSpec spec);
  // One callback at a time; an empty one takes it away. When this returns, the previous one is not running any more.
  // Not to be called from inside a callback.
  void set_callback(Callback callback) const;

 private:
  InstrumentState* state_;
};

// Bucket bounds, by what they measure (seconds unless named otherwise).
std::vector<double> bounds_http();
std::vector<double> bounds_wait();
std::vector<double> bounds_request();
std::vector<double> bounds_step();
std::vector<double> bounds_operation();
std::vector<double> bounds_tokens();
std::vector<double> bounds_bytes();
std::vector<double> bounds_tokens_per_second();
std::vector<double> bounds_fraction();
std::vector<double> bounds_count();
std::vector<double> bounds_norm();
std::vector<double> bounds_first_token();
std::vector<double> bounds_loss();

struct Metrics {
  Metrics();

  // http.server.*
  Histogram http_server_request_duration;
  Counter http_server_active_requests;
  Counter http_rejected;

  // tuft.training.*
  Counter training_models_active;
  Histogram training_tokens_per_second;
  Counter training_checkpoints_saved;
  Histogram training_checkpoint_size_bytes;
  Counter training_tokens;
  Histogram training_step_duration;  // phase: queue, forward, backward, optim
  Histogram training_grad_norm;
  Histogram training_loss;
  Counter training_optim_steps;
  Counter training_nonfinite;
  Histogram checkpoint_duration;  // operation: save, load

  // tuft.sampling.*
  Counter sampling_sessions_active;
  Counter sampling_requests;
  Histogram sampling_duration;
  Histogram sampling_tokens_per_second;
  Histogram sampling_output_tokens;
  Counter sampling_tokens;        // kind: prefill, decode
  Counter sampling_finished;      // finish_reason: stop, length, error, cancelled
  Histogram time_to_first_token;  // gen_ai.server.time_to_first_token

  // tuft.futures.*
  Counter futures_queue_length;
  Counter futures_created;
  Counter futures_completed;
  Histogram futures_wait_time;
  Histogram futures_execution_time;
  Counter futures_evicted;

  // tuft.sessions.*, tuft.sequence_guard.*, tuft.client.*
  Counter sessions_active;
  Counter sequence_guard_out_of_order;
  Histogram sequence_guard_wait_duration;
  Counter client_events;

  // tuft.worker.*, tuft.scheduler.*, tuft.lora.*
  Counter worker_restarts;
  Histogram worker_rpc_duration;      // method, status
  Histogram scheduler_step_duration;  // phase: train, prefill, decode, mixed
  Histogram scheduler_batch_tokens;
  ObservableGauge scheduler_requests;  // state: running, waiting
  ObservableGauge lora_adapters;       // kind: training, sampler

  // tuft.resource.*: registered by start_resource_metrics()
  ObservableGauge cpu_utilization_percent;
  ObservableGauge memory_used_bytes;
  ObservableGauge memory_total_bytes;
  ObservableGauge memory_utilization_percent;
  ObservableGauge gpu_utilization_percent;
  ObservableGauge gpu_memory_used_bytes;
  ObservableGauge gpu_memory_total_bytes;
  ObservableGauge process_memory_used_bytes;

  // Telemetry's own health.
  Counter telemetry_dropped;   // signal: traces, logs, log_lines; reason: ring_full, queue_full, shutdown
  Counter telemetry_exported;  // signal: traces, logs, metrics; outcome: ok, failed
  Counter telemetry_nonfinite;
  Counter telemetry_series_overflowed;
  Counter telemetry_context_malformed;
};

// The one set of instruments of the process. Built at first use.
Metrics& get_metrics();

enum class InstrumentKind : uint8_t { kCounter, kUpDownCounter, kHistogram, kGauge };

// "Counter", "UpDownCounter", "Histogram", "ObservableGauge".
std::string_view instrument_kind_name(InstrumentKind kind);

struct InstrumentInfo {
  std::string name;
  InstrumentKind kind = InstrumentKind::kCounter;
  std::string unit;
  std::string description;
  std::string scope;
  std::vector<double> bounds;
};

// Every instrument of the process, sorted by name; those of Metrics are always among them.
std::vector<InstrumentInfo> instrument_catalogue();

}  // namespace tuft::telemetry
