// What a user has on the server, for reading: sessions, training runs, samplers, checkpoints.
//
// Thread-safe; reads memory only, and never waits for the store: what it changes is durable with when_durable(). A user
// sees what is theirs; `Scope::kAccessible` adds single things that others made public. Unknown and foreign ids are the
// same kNotFound.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/page.h"
#include "control/types.h"

namespace tuft::control {

enum class Scope : uint8_t { kOwned, kAccessible };

struct CheckpointView {
  std::string checkpoint_id;  // "weights/0001", "sampler_weights/step-10"
  bool training = true;       // else for samplers
  std::string created_at;     // ISO 8601, here and below
  std::string tinker_path;
  int64_t size_bytes = 0;
  bool is_public = false;
  std::optional<std::string> expires_at;
};

struct TrainingRunView {
  RunId run;
  std::string base_model;
  UserId owner;
  int lora_rank = 0;
  std::string last_request_time;
  bool corrupted = false;  // its adapter could not be brought back
  std::optional<CheckpointView> last_checkpoint;
  std::optional<CheckpointView> last_sampler_checkpoint;
  std::map<std::string, std::string> user_metadata;
};

struct SessionView {
  std::vector<RunId> runs;
  std::vector<SamplerId> samplers;
  std::map<std::string, std::string> user_metadata = {};
};

// What a user's checkpoints of one project take.
struct StoredView {
  std::string project;  // empty: of none
  int64_t checkpoints = 0;
  int64_t size_bytes = 0;
};

class Catalog {
 public:
  virtual ~Catalog() = default;

  // Newest first.
  virtual Page<SessionId> sessions(const UserId& user, const PageRequest& page) const = 0;
  virtual Result<SessionView> session(const UserId& user, const SessionId& session) const = 0;
  // Whether session() and training_run(..., kOwned) would find it.
  virtual bool owns_session(const UserId& user, const SessionId& session) const = 0;
  virtual bool owns_run(const UserId& user, const RunId& run) const = 0;
  virtual Status set_project(const UserId& user, const SessionId& session, const std::string& project) = 0;

  // The longest untouched last. `project` empty: of all. Runs stay listed as long as they have checkpoints, also when
  // they were unloaded; their project is the one that their session has, or had when the newest of them was saved.
  virtual Page<TrainingRunView> training_runs(const UserId& user, const PageRequest& page,
                                              const std::string& project) const = 0;
  // kAccessible: of somebody else's run what its public checkpoints tell, without user_metadata.
  virtual Result<TrainingRunView> training_run(const UserId& user, const RunId& run, Scope scope) const = 0;

  // Of one run, oldest first; of all runs of the user, newest first. Ephemeral ones are left out.
  virtual Result<Page<CheckpointView>> checkpoints_of(const UserId& user, const RunId& run,
                                                      const PageRequest& page) const = 0;
  virtual Page<CheckpointView> checkpoints(const UserId& user, const PageRequest& page) const = 0;

  // By project, without ephemeral ones. `project` empty: of all.
  virtual std::vector<StoredView> stored(const UserId& user, const std::string& project) const = 0;
};

}  // namespace tuft::control
