// The checkpoints that a server has, in the orders in which they are asked for. Each call costs what it returns and the
// logarithm of what there is, whoever it belongs to.
//
// All checkpoints of a run belong to one user. Ephemeral ones are found by their path and are in no list.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/checkpoint.h"
#include "control/page.h"
#include "control/ranked_set.h"
#include "control/types.h"

namespace tuft::control {

using CheckpointPtr = std::shared_ptr<const Checkpoint>;

// What its checkpoints tell of a run.
struct RunHead {
  RunId run;
  UserId owner;
  std::string last_saved;  // created_at of the newest
  CheckpointPtr training;  // the newest by future number, here and below; null: none
  CheckpointPtr sampler;
};

class CheckpointLists {
 public:
  // Instead of the one that has its path.
  void put(const CheckpointPtr& checkpoint);
  void erase(const std::string& path);

  // By path (tinker://...); null: none.
  CheckpointPtr find(const std::string& path) const;
  CheckpointPtr newest_training(const RunId& run) const;
  // Those whose time is over.
  std::vector<CheckpointPtr> expired(Nanos wall) const;

  // Nothing for a run without checkpoints, or without public ones.
  std::optional<RunHead> head(const RunId& run) const;
  std::optional<RunHead> public_head(const RunId& run) const;
  // Oldest first.
  Page<CheckpointPtr> of_run(const RunId& run, const PageRequest& page) const;

  // Newest first.
  Page<CheckpointPtr> of_owner(const UserId& owner, const PageRequest& page) const;
  // Of those for samplers the ones that come after `place`, whether it is there still; null: from the first.
  std::vector<CheckpointPtr> samplers_after(const UserId& owner, const CheckpointPtr& place, size_t count_max) const;

  // A place in the list of a user's runs, that saved last first. The default is before all of them.
  using RunPlace = std::optional<std::pair<std::string, RunId>>;  // last_saved and the run
  std::vector<RunHead> runs_after(const UserId& owner, const RunPlace& place, size_t count_max) const;
  int64_t count_runs(const UserId& owner) const;
  // In any order.
  std::vector<RunHead> runs_of_session(const UserId& owner, const SessionId& session) const;

 private:
  struct Older {
    bool operator()(const CheckpointPtr& a, const CheckpointPtr& b) const;
  };
  struct Newer {
    bool operator()(const CheckpointPtr& a, const CheckpointPtr& b) const { return Older()(b, a); }
  };
  struct ByNumber {
    bool operator()(const CheckpointPtr& a, const CheckpointPtr& b) const;
  };
  using Kinds = std::array<std::set<CheckpointPtr, ByNumber>, 2>;
  struct RunLists {
    UserId owner;
    RankedSet<CheckpointPtr, Older> all;
    Kinds of_kind, is_public;
  };
  struct OwnerLists {
    RankedSet<CheckpointPtr, Newer> all;
    std::set<CheckpointPtr, Newer> samplers;
    std::set<std::pair<std::string, RunId>, std::greater<>> runs;
  };

  void list(const CheckpointPtr& checkpoint);
  void unlist(const CheckpointPtr& checkpoint);
  static std::string last_saved(const Kinds& kinds);
  static std::optional<RunHead> head_of(const RunId& run, const UserId& owner, const Kinds& kinds);

  std::unordered_map<std::string, CheckpointPtr> by_path_;
  std::map<RunId, RunLists> runs_;  // those of a session are neighbours
  std::unordered_map<UserId, OwnerLists> owners_;
  std::set<std::pair<Nanos, std::string>> expiring_;  // paths
};

}  // namespace tuft::control
