// An observer of a server where alice has a run, a session, a sampler and a trace, and bob nothing. carol is the
// operator.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "control/observe/observer.h"

namespace tuft::api {

class FakeObserver final : public control::Observer {
 public:
  using UserId = control::UserId;
  static constexpr const char* kTrace = "0123456789abcdef0123456789abcdef";
  static constexpr const char* kRun = "s1:train:0";

  std::function<void()> on_traces;  // called by traces(). To be set before the server starts

  // What was asked last.
  telemetry_store::Filter filter() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return filter_;
  }
  telemetry_store::LogQuery log_query() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return logs_;
  }
  telemetry_store::MetricQuery metric_query() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return metric_;
  }
  control::Part part() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return part_;
  }
  Nanos step() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return step_;
  }
  int series_asked() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return series_asked_;
  }

  // Gives a trace so many spans, and a page so many log records, of 1 KiB each. To be called before the server starts.
  void make_large(size_t count) { large_ = count; }

  bool is_operator(const UserId& user) const override { return user.str() == "carol"; }
  bool has_store() const override { return true; }

  Result<telemetry_store::TracePage> traces(const UserId& user, const telemetry_store::Filter& filter,
                                            const telemetry_store::PageOf& page) const override {
    if (on_traces) on_traces();
    note(filter);
    telemetry_store::TracePage found;
    if (!sees(user)) return found;
    telemetry_store::TraceSummary& trace = found.traces.emplace_back();
    trace.trace_id = kTrace;
    trace.root_name = "POST /api/v1/asample";
    trace.root_span_id = "00000000000000aa";
    trace.owner = "alice";
    trace.start = 1'700'000'000'000'001'500;
    trace.duration = 2'500;
    trace.spans = 2;
    found.next = page.cursor.empty() ? "more" : "";
    return found;
  }
  Result<telemetry_store::DurationHistogram> durations(const UserId&,
                                                       const telemetry_store::Filter& filter) const override {
    note(filter);
    telemetry_store::DurationHistogram histogram;
    histogram.bounds = {1'000, 2'000'000};
    histogram.counts = {1, 2, 3};
    histogram.failed = {0, 0, 1};
    return histogram;
  }
  Result<telemetry_store::SpanSeries> span_series(const UserId&, const telemetry_store::Filter& filter,
                                                  telemetry_store::SpanFunction, std::string_view by,
                                                  Nanos step) const override TUFT_EXCLUDES(mutex_) {
    note(filter);
    MutexLock lock(mutex_);
    step_ = step;
    ++series_asked_;
    telemetry_store::SpanSeries series;
    series.start = filter.time.from;
    series.step = step;
    series.series.emplace_back(std::string(by), std::vector<double>{1, control::kUnknown, 2.5});
    return series;
  }
  Result<control::ObservedTrace> trace(const UserId& user, std::string_view id) const override {
    if (!sees(user) || id != kTrace) return not_found("its own words");
    control::ObservedTrace observed;
    telemetry_store::Span& span = observed.trace.spans.emplace_back();
    span.trace_id = kTrace;
    span.span_id = "00000000000000aa";
    span.name = "bad \xff text\n";
    span.service = "tuft";
    span.owner = "alice";
    span.kind = 2;
    span.start = 1'000;
    span.duration = 3'000'000;
    span.attributes = {
        {"text", "a\"b", true}, {"number", "1.5", false}, {"list", "[1,2]", false}, {"bad", "NaN", false}};
    span.events.push_back({2'000, "first_token", {}});
    enlarge(observed.trace.spans, observed.trace.memory_bytes);
    observed.critical_path = control::critical_path(observed.trace);
    observed.explanation = control::explain(observed.trace, observed.critical_path);
    return observed;
  }
  Result<telemetry_store::LogPage> logs(const UserId& user, const telemetry_store::LogQuery& query) const override
      TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    logs_ = query;
    telemetry_store::LogPage page;
    page.newest = "n1";
    if (!sees(user)) return page;
    telemetry_store::LogRecord& record = page.logs.emplace_back();
    record.time = 1'500;
    record.severity = 13;
    record.event = "e";
    record.body = "hello";
    enlarge(page.logs, page.memory_bytes);
    return page;
  }
  Result<std::vector<telemetry_store::MetricInfo>> metrics(const UserId&) const override {
    telemetry_store::MetricInfo info;
    info.name = "tuft.x";
    info.kind = telemetry_store::MetricKind::kCounter;
    info.labels = {{"k", {"v"}}};
    return std::vector{info};
  }
  Result<telemetry_store::MetricAnswer> metric(const UserId&, const telemetry_store::MetricQuery& query) const override
      TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    metric_ = query;
    telemetry_store::MetricAnswer answer;
    answer.metric.name = query.name;
    answer.series.push_back({{{"k", "v"}}, {1, control::kUnknown}});
    answer.memory_bytes = large_ * kLargeBytes;
    return answer;
  }
  Result<std::vector<telemetry_store::MetricExemplar>> exemplars(const UserId&,
                                                                 const telemetry_store::MetricQuery&) const override {
    return std::vector<telemetry_store::MetricExemplar>(1);
  }
  Result<std::vector<telemetry_store::RunStep>> steps(const UserId& user, const control::RunId& run, int64_t,
                                                      size_t) const override {
    if (!sees(user) || run.str() != kRun) return not_found("there is no such training run");
    telemetry_store::RunStep step;
    step.step = 1;
    step.loss = control::kUnknown;
    step.pass_seconds = 0.5;
    return std::vector{step};
  }

  control::Overview overview(const UserId& user) const override {
    control::Overview overview;
    overview.ready = true;
    control::ModelRow& model = overview.models.emplace_back();
    model.base_model = "base/model";
    model.state = "draining";
    if (is_operator(user)) overview.users_active = 1;
    return overview;
  }
  control::PartOf<control::RunRow> runs(const UserId& user, const control::Part& part) const override
      TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    part_ = part;
    control::PartOf<control::RunRow> runs;
    if (sees(user)) runs.rows.push_back(row());
    if (sees(user)) runs.next = part.offset + 1;
    return runs;
  }
  Result<control::RunDetails> run(const UserId& user, const control::RunId& run) const override {
    if (!sees(user) || run.str() != kRun) return not_found("there is no such training run");
    control::RunDetails details;
    details.run = row();
    details.advice = {"go faster"};
    return details;
  }
  control::PartOf<control::SamplerRow> samplers(const UserId& user, const control::Part&) const override {
    control::PartOf<control::SamplerRow> samplers;
    if (sees(user)) samplers.rows.emplace_back().user = UserId("alice");
    return samplers;
  }
  control::PartOf<control::SessionRow> sessions(const UserId& user, const control::Part&) const override {
    control::PartOf<control::SessionRow> sessions;
    if (sees(user)) sessions.rows.emplace_back().user = UserId("alice");
    return sessions;
  }
  std::vector<control::WorkerInstance> workers(const UserId& user) const override {
    control::WorkerInstance worker{"m", "ready", {}};
    if (is_operator(user)) worker.row.host = "a host";
    return {worker};
  }
  std::vector<control::TenantRow> tenants(const UserId& user) const override {
    std::vector<control::TenantRow> rows(1);
    rows[0].user = user;
    rows[0].quotas = {{"limits.runs_per_user_max", 1, 0}};
    return rows;
  }
  control::SystemView system(const UserId& user) const override {
    control::SystemView system;
    system.is_whole = is_operator(user);
    if (system.is_whole) {
      system.config = "port: 1\n";
      control::WorkerRow& worker = system.workers.emplace_back();
      worker.base_model = "base/model";
      worker.state = "silent";
    }
    system.limits = {{"runs_per_user_max", 256}};
    return system;
  }

 private:
  bool sees(const UserId& user) const { return user.str() == "alice" || is_operator(user); }
  void note(const telemetry_store::Filter& filter) const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    filter_ = filter;
  }
  // `records` has one.
  template <typename Record>
  void enlarge(std::vector<Record>& records, size_t& memory_bytes) const {
    if (large_ == 0) return;
    records.front().attributes.push_back({"filler", std::string(kLargeBytes, 'x'), true});
    records.resize(large_, Record(records.front()));
    memory_bytes = large_ * kLargeBytes;
  }
  static control::RunRow row() {
    control::RunRow run;
    run.run = control::RunId(kRun);
    run.user = UserId("alice");
    run.last_active = 1'000;
    return run;
  }

  static constexpr size_t kLargeBytes = 1024;

  size_t large_ = 0;
  mutable Mutex mutex_;
  mutable telemetry_store::Filter filter_ TUFT_GUARDED_BY(mutex_);
  mutable telemetry_store::LogQuery logs_ TUFT_GUARDED_BY(mutex_);
  mutable telemetry_store::MetricQuery metric_ TUFT_GUARDED_BY(mutex_);
  mutable control::Part part_ TUFT_GUARDED_BY(mutex_);
  mutable Nanos step_ TUFT_GUARDED_BY(mutex_) = 0;
  mutable int series_asked_ TUFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace tuft::api
