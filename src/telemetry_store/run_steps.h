// The steps of training runs: in memory, and in one small file that is written anew when it holds too much that is
// outdated. Internal to telemetry_store. Thread-safe; load(), add() and flush() are for the store's thread.
//
// Over the number of runs, the owner with the most of them loses the run that rested longest. Over the memory, the
// longest run of the owner with the most steps loses every second step. So no owner's runs push out those of another
// who has less. A step costs the logarithm of the number of runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/ranking.h"
#include "base/result.h"
#include "telemetry_store/disk_file.h"
#include "telemetry_store/query.h"

namespace tuft::telemetry_store::internal {

class RunSteps {
 public:
  // `directory` empty: memory only. The steps of all runs take at most `memory_bytes_max`, and the file twice that.
  RunSteps(const std::filesystem::path& directory, size_t memory_bytes_max);

  // Reads the file. Leaves out what is damaged.
  void load() TUFT_EXCLUDES(mutex_);
  // Its run's steps with this number or a higher one leave. A step whose number is 0 is left out: no curve has it.
  void add(RunStep step) TUFT_EXCLUDES(mutex_);
  // Writes what was added to the page cache. Errors: the disk; what could not be written is written with the next call.
  Status flush() TUFT_EXCLUDES(mutex_);

  std::vector<RunStep> steps(const Viewer& viewer, std::string_view run, int64_t after, size_t points) const
      TUFT_EXCLUDES(mutex_);
  uint64_t count() const TUFT_EXCLUDES(mutex_);
  uint64_t memory_bytes() const TUFT_EXCLUDES(mutex_);
  uint64_t disk_bytes() const TUFT_EXCLUDES(mutex_);

 private:
  // Steps of one run in the order of their numbers; `run` and `owner` of each are empty.
  struct Run {
    std::string owner;
    std::vector<RunStep> steps;
    Nanos last = 0;
    // Of `seen` steps of this curve, each `stride`-th is kept, and the newest, which `newest_is_extra` says.
    uint64_t seen = 0, stride = 1;
    bool newest_is_extra = false;
  };

  using Runs = std::map<std::string, Run, std::less<>>;
  // Names in rankings are keys of `runs_` and `owners_`.
  struct OfOwner {
    size_t steps = 0;
    std::set<std::pair<Nanos, std::string_view>> by_rest;  // its runs, by `last`
    Ranking<std::string_view, size_t> by_length;           // its runs, by their steps
  };

  void keep(RunStep step) TUFT_REQUIRES(mutex_);
  static void insert(Run& run, RunStep step);
  // Changes an owner, who may be new, and forgets one who has no run left.
  template <typename Change>
  void change(const std::string& owner, const Change& change) TUFT_REQUIRES(mutex_);
  // Count a run among those of its owner, and no longer. A run that is counted does not change.
  void enter(const Runs::value_type& entry) TUFT_REQUIRES(mutex_);
  void leave(const Runs::value_type& entry) TUFT_REQUIRES(mutex_);
  void remove_oldest_run_of(std::string_view owner) TUFT_REQUIRES(mutex_);
  void thin_out() TUFT_REQUIRES(mutex_);
  Status rewrite() TUFT_EXCLUDES(mutex_);

  const std::filesystem::path path_;  // empty: memory only
  const size_t steps_max_;
  DiskFile file_;          // of the store's thread
  std::string unwritten_;  // of the store's thread: entries
  uint64_t cut_at_ = 0;    // of the store's thread: the size after the last write that succeeded
  mutable Mutex mutex_;
  Runs runs_ TUFT_GUARDED_BY(mutex_);
  std::map<std::string, OfOwner, std::less<>> owners_ TUFT_GUARDED_BY(mutex_);
  Ranking<std::string_view, size_t> by_runs_ TUFT_GUARDED_BY(mutex_);   // the owners, by the number of their runs
  Ranking<std::string_view, size_t> by_steps_ TUFT_GUARDED_BY(mutex_);  // the owners, by that of their steps
  size_t count_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t disk_bytes_ TUFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace tuft::telemetry_store::internal
