// An observer that answers with what a test sets, and remembers what it was asked.
#pragma once

#include <string>
#include <vector>

#include "control/observe/observer.h"

namespace tuft::mcp {

class FakeObserver final : public control::Observer {
 public:
  bool is_operator(const control::UserId& user) const override { return user.str() == "root"; }
  bool has_store() const override { return true; }

  Result<telemetry_store::TracePage> traces(const control::UserId& user, const telemetry_store::Filter& filter,
                                            const telemetry_store::PageOf& page) const override {
    asked = user;
    filter_asked = filter;
    page_asked = page;
    return trace_page;
  }
  Result<telemetry_store::DurationHistogram> durations(const control::UserId&,
                                                       const telemetry_store::Filter&) const override {
    return not_found("not asked for");
  }
  Result<telemetry_store::SpanSeries> span_series(const control::UserId&, const telemetry_store::Filter&,
                                                  telemetry_store::SpanFunction, std::string_view,
                                                  Nanos) const override {
    return not_found("not asked for");
  }
  Result<control::ObservedTrace> trace(const control::UserId& user, std::string_view trace_id) const override {
    asked = user;
    if (trace_id != trace_known) return not_found("there is no such trace");
    return observed;
  }
  Result<telemetry_store::LogPage> logs(const control::UserId& user,
                                        const telemetry_store::LogQuery& query) const override {
    asked = user;
    logs_asked = query;
    return log_page;
  }
  Result<std::vector<telemetry_store::MetricInfo>> metrics(const control::UserId&) const override { return infos; }
  Result<telemetry_store::MetricAnswer> metric(const control::UserId&,
                                               const telemetry_store::MetricQuery& query) const override {
    metric_asked = query;
    return metric_answer;
  }
  Result<std::vector<telemetry_store::MetricExemplar>> exemplars(const control::UserId&,
                                                                 const telemetry_store::MetricQuery&) const override {
    return not_found("not asked for");
  }
  Result<std::vector<telemetry_store::RunStep>> steps(const control::UserId&, const control::RunId&, int64_t after,
                                                      size_t points) const override {
    after_asked = after;
    points_asked = points;
    return run_steps;
  }
  control::Overview overview(const control::UserId&) const override { return seen; }
  control::PartOf<control::RunRow> runs(const control::UserId&, const control::Part& part) const override {
    part_asked = part;
    return run_rows;
  }
  Result<control::RunDetails> run(const control::UserId&, const control::RunId& run) const override {
    if (run != details.run.run) return not_found("there is no such run");
    return details;
  }
  control::PartOf<control::SamplerRow> samplers(const control::UserId&, const control::Part&) const override {
    return {};
  }
  control::PartOf<control::SessionRow> sessions(const control::UserId&, const control::Part&) const override {
    return {};
  }
  std::vector<control::WorkerInstance> workers(const control::UserId&) const override { return {}; }
  std::vector<control::TenantRow> tenants(const control::UserId& user) const override {
    std::vector<control::TenantRow> own;
    for (const control::TenantRow& row : tenant_rows) {
      if (is_operator(user) || row.user == user) own.push_back(row);
    }
    return own;
  }
  control::SystemView system(const control::UserId&) const override { return system_view; }

  Result<telemetry_store::TracePage> trace_page = telemetry_store::TracePage{};
  std::string trace_known;
  control::ObservedTrace observed;
  telemetry_store::LogPage log_page;
  std::vector<telemetry_store::MetricInfo> infos;
  telemetry_store::MetricAnswer metric_answer;
  std::vector<telemetry_store::RunStep> run_steps;
  control::Overview seen;
  control::PartOf<control::RunRow> run_rows;
  control::RunDetails details;
  std::vector<control::TenantRow> tenant_rows;
  control::SystemView system_view;

  mutable control::UserId asked;
  mutable telemetry_store::Filter filter_asked;
  mutable telemetry_store::PageOf page_asked;
  mutable telemetry_store::LogQuery logs_asked;
  mutable telemetry_store::MetricQuery metric_asked;
  mutable control::Part part_asked;
  mutable int64_t after_asked = 0;
  mutable size_t points_asked = 0;
};

}  // namespace tuft::mcp
