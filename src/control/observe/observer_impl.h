// The observer over the tables of the control plane and the telemetry store.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "config/config.h"
#include "control/accounts/api_keys.h"
#include "control/accounts/usage.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/checkpoints/disk_checkpoint_actions.h"
#include "control/futures/future_store.h"
#include "control/futures/operation_budget.h"
#include "control/observe/observer.h"
#include "control/sampling/sampler_table.h"
#include "control/sessions/sessions.h"
#include "control/training/custom_losses.h"
#include "control/training/run_table.h"
#include "control/workers/model_backend.h"
#include "telemetry_store/store.h"

namespace tuft::control {

// Thread-safe. What it refers to must outlive it.
class ObserverImpl final : public Observer {
 public:
  struct Parts {
    const config::ServerConfig& config;
    const Clock& clock;
    const telemetry_store::Store* store;  // null: telemetry is not kept
    const ApiKeys& keys;
    const ModelBackends& backends;
    const Sessions& sessions;
    const OperationBudget& budget;
    const FutureStore& futures;
    const CheckpointStore& checkpoints;
    const DiskCheckpointActions& checkpoint_actions;
    const RunTable& runs;
    const SamplerTable& samplers;
    const CustomLosses& custom_losses;
    const Usage& usage;
    std::function<Status()> state_store;  // an error while the store of the server's state is away
  };
  explicit ObserverImpl(Parts parts);

  bool is_operator(const UserId& user) const override;
  bool has_store() const override { return parts_.store != nullptr; }

  Result<telemetry_store::TracePage> traces(const UserId& user, const telemetry_store::Filter& filter,
                                            const telemetry_store::PageOf& page) const override;
  Result<telemetry_store::DurationHistogram> durations(const UserId& user,
                                                       const telemetry_store::Filter& filter) const override;
  Result<telemetry_store::SpanSeries> span_series(const UserId& user, const telemetry_store::Filter& filter,
                                                  telemetry_store::SpanFunction function, std::string_view by,
                                                  Nanos step) const override;
  Result<ObservedTrace> trace(const UserId& user, std::string_view trace_id) const override;
  Result<telemetry_store::LogPage> logs(const UserId& user, const telemetry_store::LogQuery& query) const override;
  Result<std::vector<telemetry_store::MetricInfo>> metrics(const UserId& user) const override;
  Result<telemetry_store::MetricAnswer> metric(const UserId& user,
                                               const telemetry_store::MetricQuery& query) const override;
  Result<std::vector<telemetry_store::MetricExemplar>> exemplars(
      const UserId& user, const telemetry_store::MetricQuery& query) const override;
  Result<std::vector<telemetry_store::RunStep>> steps(const UserId& user, const RunId& run, int64_t after,
                                                      size_t points) const override;

  Overview overview(const UserId& user) const override;
  PartOf<RunRow> runs(const UserId& user, const Part& part) const override;
  Result<RunDetails> run(const UserId& user, const RunId& run) const override;
  PartOf<SamplerRow> samplers(const UserId& user, const Part& part) const override;
  PartOf<SessionRow> sessions(const UserId& user, const Part& part) const override;
  std::vector<TenantRow> tenants(const UserId& user) const override;
  std::vector<WorkerInstance> workers(const UserId& user) const override;
  SystemView system(const UserId& user) const override;

 private:
  telemetry_store::Viewer viewer(const UserId& user) const;
  Status check_store() const;
  // Those whose things the user may see.
  std::vector<UserId> seen_by(const UserId& user) const;
  // Converts a monotonic time of this process to the wall clock.
  Nanos wall_of(Nanos monotonic) const;
  EngineWorkIn engine_work_of(const std::string& owner) const;

  ModelRow model_row(const Model& model, const UnfinishedWork& own, bool is_whole) const;
  std::vector<RunRow> run_rows(const UserId& user, size_t count_max) const;
  void add_steps(const telemetry_store::Viewer& viewer, RunRow& row) const;
  std::optional<RunRow> find_run(const UserId& user, const RunId& run) const;
  std::vector<OperationRow> operations_of(const UserId& user, const RunId& run) const;
  SessionRow session_row(const UserId& user, const SessionFound& found) const;
  TenantRow tenant_row(const UserId& user) const;
  std::vector<QuotaRow> quotas_of(const UserId& user, const OperationBudget::Use& use) const;

  const Parts parts_;
  const std::unordered_set<std::string> operators_;
  const Nanos started_wall_, started_monotonic_;
};

}  // namespace tuft::control
