// What users and operators may see of the server: its telemetry, and the things in it. The one door from the edge to
// the telemetry store.
//
// The room observe/ promises: every answer is that of one viewer. A user sees what is theirs, an operator
// (console.operators) sees all; an id of another user gets the same answer as an id that never was. What an answer
// costs is bounded by its limits, and no secret of the configuration is in any.
//
// Thread-safe. Everything here may read the disk or look at many things: call it on a work thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/observe/views.h"
#include "control/types/types.h"
#include "telemetry_store/query.h"

namespace tuft::control {

// It has more than 25 methods because each is a question that somebody asks.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual bool is_operator(const UserId& user) const = 0;
  // Whether telemetry is kept. Without it the questions about it have the error kFailedPrecondition
  // "telemetry_store_off".
  virtual bool has_store() const = 0;

  // ---- telemetry (telemetry_store/store.h says what each means)

  virtual Result<telemetry_store::TracePage> traces(const UserId& user, const telemetry_store::Filter& filter,
                                                    const telemetry_store::PageOf& page) const = 0;
  virtual Result<telemetry_store::DurationHistogram> durations(const UserId& user,
                                                               const telemetry_store::Filter& filter) const = 0;
  virtual Result<telemetry_store::SpanSeries> span_series(const UserId& user, const telemetry_store::Filter& filter,
                                                          telemetry_store::SpanFunction function, std::string_view by,
                                                          Nanos step) const = 0;
  // Returns kNotFound if the user may see none of its spans.
  virtual Result<ObservedTrace> trace(const UserId& user, std::string_view trace_id) const = 0;
  virtual Result<telemetry_store::LogPage> logs(const UserId& user, const telemetry_store::LogQuery& query) const = 0;
  virtual Result<std::vector<telemetry_store::MetricInfo>> metrics(const UserId& user) const = 0;
  virtual Result<telemetry_store::MetricAnswer> metric(const UserId& user,
                                                       const telemetry_store::MetricQuery& query) const = 0;
  virtual Result<std::vector<telemetry_store::MetricExemplar>> exemplars(
      const UserId& user, const telemetry_store::MetricQuery& query) const = 0;
  // Returns kNotFound for a run that is not the user's.
  virtual Result<std::vector<telemetry_store::RunStep>> steps(const UserId& user, const RunId& run, int64_t after,
                                                              size_t points) const = 0;

  // ---- things

  virtual Overview overview(const UserId& user) const = 0;
  // The most recently used first.
  virtual PartOf<RunRow> runs(const UserId& user, const Part& part) const = 0;
  virtual Result<RunDetails> run(const UserId& user, const RunId& run) const = 0;
  virtual PartOf<SamplerRow> samplers(const UserId& user, const Part& part) const = 0;
  // The newest first; ended ones, too, as far as they are remembered.
  virtual PartOf<SessionRow> sessions(const UserId& user, const Part& part) const = 0;
  // By name; for an operator everybody who has a key.
  virtual std::vector<TenantRow> tenants(const UserId& user) const = 0;
  // By base model, in the order in which they came. For users that are not operators: their states.
  virtual std::vector<WorkerInstance> workers(const UserId& user) const = 0;
  // For users that are not operators: the store and the limits only.
  virtual SystemView system(const UserId& user) const = 0;
};

}  // namespace tuft::control
