// The calls of operations whose worker was disconnected before it answered. The worker may come back with the answers,
// so the operations wait here, and RunResumption decides (run_resumption.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "control/training/run.h"

namespace tuft::control {

struct CutCall {
  // Makes the same call again, in the life `incarnation` of the run's worker.
  std::function<void(uint64_t incarnation)> again;
  // Ends the call with its error.
  std::function<void()> fail;
};

// Thread-safe. Its lock is innermost. A run has one call at most.
class CutCalls {
 public:
  void add(const RunPtr& run, CutCall call) {
    MutexLock lock(mutex_);
    calls_.insert_or_assign(run, std::move(call));
  }
  std::optional<CutCall> take(const RunPtr& run) {
    MutexLock lock(mutex_);
    auto found = calls_.extract(run);
    return found.empty() ? std::nullopt : std::optional(std::move(found.mapped()));
  }
  // Returns the runs that have one.
  std::vector<RunPtr> runs() const {
    std::vector<RunPtr> runs;
    MutexLock lock(mutex_);
    runs.reserve(calls_.size());
    for (const auto& [run, call] : calls_) runs.push_back(run);
    return runs;
  }

 private:
  mutable Mutex mutex_;
  std::unordered_map<RunPtr, CutCall> calls_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
