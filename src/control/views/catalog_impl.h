// The catalog, combined from sessions, controllers and checkpoints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/checkpoints/checkpoint_store.h"
#include "control/sampling/sampler_table.h"
#include "control/sessions/sessions.h"
#include "control/training/run.h"
#include "control/training/run_table.h"
#include "control/views/catalog.h"

namespace tuft::control {

// Thread-safe. Its references must outlive it.
class CatalogImpl final : public Catalog {
 public:
  CatalogImpl(Sessions& sessions, const RunTable& runs, const SamplerTable& samplers,
              const CheckpointStore& checkpoints)
      : sessions_(sessions), runs_(runs), samplers_(samplers), checkpoints_(checkpoints) {}

  Page<SessionId> sessions(const UserId& user, const PageRequest& page) const override;
  Result<SessionView> session(const UserId& user, const SessionId& session) const override;
  SessionsFound search_sessions(const UserId& user, const SessionQuery& query) const override;
  bool owns_session(const UserId& user, const SessionId& session) const override;
  bool owns_run(const UserId& user, const RunId& run) const override;
  Status set_project(const UserId& user, const SessionId& session, const std::string& project) override;
  Page<TrainingRunView> training_runs(const UserId& user, const PageRequest& page,
                                      const std::string& project) const override;
  Result<TrainingRunView> training_run(const UserId& user, const RunId& run, Scope scope) const override;
  Result<Page<CheckpointView>> checkpoints_of(const UserId& user, const RunId& run, const PageRequest& page,
                                              Listed listed) const override;
  Page<CheckpointView> checkpoints(const UserId& user, const PageRequest& page, Listed listed) const override;
  std::vector<StoredView> stored(const UserId& user, const std::string& project) const override;

 private:
  // A run as the controller has it, or as its checkpoints describe it.
  struct Entry {
    RunSummary run;
    std::optional<RunHead> saved;  // none: no checkpoint
  };
  class RunsByUse;

  // Returns a run of the user, or nothing if the controller does not have it and it has no checkpoint.
  std::optional<Entry> own_entry(const UserId& user, const RunId& run) const;
  static Entry entry_of(RunHead head);
  static Entry entry_of(RunSummary live, std::optional<RunHead> saved);
  std::string project_of(const Entry& entry) const;
  static TrainingRunView view_of(const Entry& entry, const UserId& owner);

  Sessions& sessions_;
  const RunTable& runs_;
  const SamplerTable& samplers_;
  const CheckpointStore& checkpoints_;
};

}  // namespace tuft::control
