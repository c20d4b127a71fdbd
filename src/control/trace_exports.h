// The trace of a session as a file to fetch: gathered from this process and the workers, kept for a while under an
// address that nobody can guess.
//
// Thread-safe. Works on a thread of its own; bounded by kExportBytes, kKeptBytesMax and kKept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/disk_worker.h"
#include "control/model_backend.h"
#include "control/types.h"
#include "control/usage.h"

namespace tuft::control {

struct TraceExport {
  enum class State : uint8_t { kPending, kReady, kFailed };
  State state = State::kFailed;
  std::string token = {};  // kReady: opens the file until `expires` (wall clock)
  Nanos expires = 0;
  std::string error = {};  // kFailed: why, and what to do
};

struct TraceFile {
  std::string name;  // of letters, digits, '-', '_' and '.'
  std::shared_ptr<const std::string> json;
};

class TraceExports : public std::enable_shared_from_this<TraceExports> {
 public:
  static constexpr size_t kExportBytes = size_t{4} << 20;  // encoded, of each process; the newest
  static constexpr size_t kKeptBytesMax = size_t{128} << 20;
  static constexpr Nanos kKept = kHour;

  // `owns`: whether the session is, or was, the user's. What is borrowed outlives stop().
  struct Parts {
    const Clock& clock;
    const ModelBackends& backends;
    std::function<bool(const UserId&, const SessionId&)> owns;
  };
  explicit TraceExports(Parts parts);

  // `done` is called once, perhaps before this returns: with kPending where the session's export is being made already,
  // else when it is made. Unknown and foreign sessions are the same kNotFound.
  void make(const UserId& user, const SessionId& session, std::function<void(Result<TraceExport>)> done);
  // kNotFound for what was never ours and what has expired.
  Result<TraceFile> open(std::string_view token);
  void stop();

 private:
  struct Job;
  struct Kept {
    TraceFile file;
    Nanos expires = 0;
  };
  using JobPtr = std::shared_ptr<Job>;

  void gather(const JobPtr& job);
  void write(const JobPtr& job, std::vector<std::string> theirs);
  void finish(const JobPtr& job, TraceExport result);
  std::string keep(TraceFile file, Nanos expires) TUFT_EXCLUDES(mutex_);

  const Parts parts_;
  Mutex mutex_;
  std::set<SessionId> running_ TUFT_GUARDED_BY(mutex_);
  std::map<std::string, Kept, std::less<>> kept_ TUFT_GUARDED_BY(mutex_);
  DiskWorker thread_{64};
};

}  // namespace tuft::control
