// A telemetry store that notes who asks and for what, and answers what a test has put into it. Thread-safe for queries
// of one test thread only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "telemetry_store/store.h"

namespace tuft::control {

class FakeTelemetryStore final : public telemetry_store::Store {
 public:
  using Viewer = telemetry_store::Viewer;
  using Filter = telemetry_store::Filter;

  // ---- for tests
  mutable std::vector<Viewer> viewers;  // of each query, in order
  mutable std::vector<Filter> filters;
  std::vector<telemetry_store::RunStep> run_steps;
  std::optional<telemetry_store::Trace> kept_trace;
  std::vector<std::pair<std::string, double>> busy;  // by user
  std::function<void()> on_series;                   // called by each span_series(), if it is set

  // ---- Store
  bool add(telemetry_store::RecordType, std::string, const telemetry_store::Source&) override { return true; }
  bool add_metrics(std::string, const telemetry_store::Source&) override { return true; }
  int64_t request_bytes_max() const override { return 4 << 20; }
  telemetry_store::Rejections take_refused_points(const std::string&) override { return {}; }
  void add_step(telemetry_store::RunStep step) override { run_steps.push_back(std::move(step)); }
  bool settle(Nanos) override { return true; }

  Result<telemetry_store::TracePage> traces(const Viewer& viewer, const Filter& filter,
                                            const telemetry_store::PageOf&) const override {
    note(viewer, filter);
    return telemetry_store::TracePage{};
  }
  Result<telemetry_store::DurationHistogram> durations(const Viewer& viewer, const Filter& filter) const override {
    note(viewer, filter);
    return telemetry_store::DurationHistogram{};
  }
  Result<telemetry_store::SpanSeries> span_series(const Viewer& viewer, const Filter& filter,
                                                  telemetry_store::SpanFunction function, std::string_view by,
                                                  Nanos step) const override {
    note(viewer, filter);
    if (on_series) on_series();
    telemetry_store::SpanSeries series{.start = filter.time.from, .step = step, .series = {}};
    if (function != telemetry_store::SpanFunction::kBusy || by != "user" || filter.name != "engine.*") return series;
    for (const auto& [user, points] : busy) series.series.emplace_back(user, std::vector<double>{points});
    return series;
  }
  Result<telemetry_store::Trace> trace(const Viewer& viewer, std::string_view trace_id, size_t) const override {
    note(viewer, {});
    if (!kept_trace || kept_trace->spans.front().trace_id != trace_id) return not_found("there is no such trace");
    if (!viewer.all && kept_trace->spans.front().owner != viewer.user) return not_found("there is no such trace");
    return *kept_trace;
  }
  Result<telemetry_store::LogPage> logs(const Viewer& viewer, const telemetry_store::LogQuery& query) const override {
    note(viewer, query.filter);
    return telemetry_store::LogPage{};
  }
  std::vector<telemetry_store::MetricInfo> metrics(const Viewer& viewer) const override {
    note(viewer, {});
    return {};
  }
  Result<telemetry_store::MetricAnswer> metric(const Viewer& viewer,
                                               const telemetry_store::MetricQuery&) const override {
    note(viewer, {});
    return telemetry_store::MetricAnswer{};
  }
  std::vector<telemetry_store::MetricExemplar> exemplars(const Viewer& viewer,
                                                         const telemetry_store::MetricQuery&) const override {
    note(viewer, {});
    return {};
  }
  std::vector<telemetry_store::RunStep> steps(const Viewer& viewer, std::string_view run, int64_t after,
                                              size_t points) const override {
    note(viewer, {});
    std::vector<telemetry_store::RunStep> found;
    for (const telemetry_store::RunStep& step : run_steps) {
      const bool is_seen = viewer.all || step.owner == viewer.user;
      if (is_seen && step.run == run && step.step > after) found.push_back(step);
    }
    if (found.size() > points) found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(points));
    return found;
  }
  telemetry_store::StoreState state() const override {
    telemetry_store::StoreState state;
    state.on_disk = true;
    state.spans = 3;
    return state;
  }

 private:
  void note(const Viewer& viewer, const Filter& filter) const {
    viewers.push_back(viewer);
    filters.push_back(filter);
  }
};

}  // namespace tuft::control
