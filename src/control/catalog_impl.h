// The catalog of a server: what its sessions, controllers and checkpoints know, put together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/catalog.h"
#include "control/checkpoint_store.h"
#include "control/run.h"
#include "control/sampling_controller.h"
#include "control/sessions.h"
#include "control/training_controller.h"

namespace tuft::control {

// Thread-safe: holds references only, which outlive it.
class CatalogImpl final : public Catalog {
 public:
  CatalogImpl(Sessions& sessions, const TrainingController& training, const SamplingController& sampling,
              const CheckpointStore& checkpoints)
      : sessions_(sessions), training_(training), sampling_(sampling), checkpoints_(checkpoints) {}

  Page<SessionId> sessions(const UserId& user, const PageRequest& page) const override;
  Result<SessionView> session(const UserId& user, const SessionId& session) const override;
  bool owns_session(const UserId& user, const SessionId& session) const override;
  bool owns_run(const UserId& user, const RunId& run) const override;
  Status set_project(const UserId& user, const SessionId& session, const std::string& project) override;
  Page<TrainingRunView> training_runs(const UserId& user, const PageRequest& page,
                                      const std::string& project) const override;
  Result<TrainingRunView> training_run(const UserId& user, const RunId& run, Scope scope) const override;
  Result<Page<CheckpointView>> checkpoints_of(const UserId& user, const RunId& run,
                                              const PageRequest& page) const override;
  Page<CheckpointView> checkpoints(const UserId& user, const PageRequest& page) const override;
  std::vector<StoredView> stored(const UserId& user, const std::string& project) const override;

 private:
  // A run as the controller has it, or as its checkpoints tell of it.
  struct Entry {
    RunSummary run;
    std::optional<RunHead> saved;  // none: it has no checkpoint
  };
  class RunsByUse;

  // The user's own; nothing where the controller does not have it and it has no checkpoint.
  std::optional<Entry> own_entry(const UserId& user, const RunId& run) const;
  static Entry entry_of(RunHead head);
  static Entry entry_of(RunSummary live, std::optional<RunHead> saved);
  std::string project_of(const Entry& entry) const;
  static TrainingRunView view_of(const Entry& entry, const UserId& owner);

  Sessions& sessions_;
  const TrainingController& training_;
  const SamplingController& sampling_;
  const CheckpointStore& checkpoints_;
};

}  // namespace tuft::control
