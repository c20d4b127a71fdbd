// What is known of the workers of one base model, for people: those that serve, wait, or are gone.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::actor {

enum class WorkerState : uint8_t {
  kAbsent,    // none has joined; of a place, never of a row
  kStandby,   // joined; serves when the one that serves is gone
  kStarting,  // serves, but has not answered yet
  kReady,
  kSilent,    // it left several health checks in a row unanswered
  kDraining,  // it was told to end, and what it holds is being saved
  kDead,      // gone
};
inline constexpr size_t kWorkerStates = 7;
std::string_view worker_state_name(WorkerState state);

struct WorkerRow {
  uint64_t number = 0;  // of this list, from 1
  std::string worker_id = {};
  WorkerState state = WorkerState::kStarting;
  std::string reason = {};  // of kDead
  bool joined = false;      // from outside; false: the server started it
  std::string host = {}, address = {}, version = {};
  int64_t pid = 0;
  int64_t memory_bytes = 0;  // of its machine; 0: unknown, as the next
  int cores = 0;
  std::map<std::string, std::string> launcher = {};  // resource attributes of what placed it, such as k8s.pod.name
  Nanos since = 0, changed = 0;                      // wall clock: its start or join, and the newest state
};

// Thread-safe. Keeps the newest 32 workers that are gone.
class WorkerRows {
 public:
  // Sets `number`, `since` and `changed`, and returns the number.
  uint64_t add(WorkerRow row);
  // A worker that is gone stays so.
  void set(uint64_t number, WorkerState state, std::string_view reason = {});
  std::vector<WorkerRow> all() const;
  int64_t count(WorkerState state) const;

 private:
  mutable Mutex mutex_;
  std::deque<WorkerRow> rows_ TUFT_GUARDED_BY(mutex_);
  uint64_t last_ TUFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace tuft::actor
