// A user's sessions, training runs, samplers and checkpoints.
//
// The room views/ promises: answers show a user only what is theirs or public, and an unknown id and one of another
// user give the same error; a query costs what it returns and does not hold up others.
//
// Thread-safe. Reads memory only and never waits for the store; changes are durable after when_durable().
// Scope::kAccessible adds single objects that other users have made public.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/types/checkpoint_path.h"
#include "control/types/page.h"
#include "control/types/session_query.h"
#include "control/types/types.h"

namespace tuft::control {

enum class Scope : uint8_t { kOwned, kAccessible };

struct CheckpointView {
  std::string checkpoint_id;  // "weights/0001", "sampler_weights/step-10"
  CheckpointKind kind = CheckpointKind::kTraining;
  std::string created_at;  // ISO 8601, here and below
  std::string tinker_path;
  int64_t size_bytes = 0;
  bool is_public = false;
  std::optional<std::string> expires_at;
  std::map<std::string, std::string> user_metadata = {};
};

struct TrainingRunView {
  RunId run;
  std::string base_model;
  UserId owner;
  int lora_rank = 0;
  std::string last_request_time;
  bool corrupted = false;  // its adapter could not be restored
  std::optional<CheckpointView> last_checkpoint;
  std::optional<CheckpointView> last_sampler_checkpoint;
  std::map<std::string, std::string> user_metadata;
};

struct SessionView {
  std::vector<RunId> runs;
  std::vector<SamplerId> samplers;
  std::map<std::string, std::string> user_metadata = {};
  std::string display_name = {};  // empty: none
};

// The storage of a user's checkpoints in one project.
struct StoredView {
  std::string project;  // empty: no project
  int64_t checkpoints = 0;
  int64_t size_bytes = 0;
};

class Catalog {
 public:
  virtual ~Catalog() = default;

  // Newest first.
  virtual Page<SessionId> sessions(const UserId& user, const PageRequest& page) const = 0;
  virtual Result<SessionView> session(const UserId& user, const SessionId& session) const = 0;
  // Finds sessions of the user, also those that have ended in the life of this server, as far as they are remembered.
  virtual SessionsFound search_sessions(const UserId& user, const SessionQuery& query) const = 0;
  // Return whether session() and training_run(..., kOwned) would find it.
  virtual bool owns_session(const UserId& user, const SessionId& session) const = 0;
  virtual bool owns_run(const UserId& user, const RunId& run) const = 0;
  virtual Status set_project(const UserId& user, const SessionId& session, const std::string& project) = 0;

  // Most recently used first. An empty `project` means all projects. An unloaded run is listed as long as it has
  // checkpoints. The project of a run is that of its session, or if the session has ended, that of its newest
  // checkpoint.
  virtual Page<TrainingRunView> training_runs(const UserId& user, const PageRequest& page,
                                              const std::string& project) const = 0;
  // With kAccessible, another user's run is shown as far as its public checkpoints describe it, without user_metadata.
  virtual Result<TrainingRunView> training_run(const UserId& user, const RunId& run, Scope scope) const = 0;

  // The checkpoints of a run, oldest first, and those of all runs of the user, newest first; without ephemeral ones.
  virtual Result<Page<CheckpointView>> checkpoints_of(const UserId& user, const RunId& run, const PageRequest& page,
                                                      Listed listed) const = 0;
  virtual Page<CheckpointView> checkpoints(const UserId& user, const PageRequest& page, Listed listed) const = 0;

  // The storage by project, without ephemeral checkpoints. An empty `project` means all projects.
  virtual std::vector<StoredView> stored(const UserId& user, const std::string& project) const = 0;
};

}  // namespace tuft::control
