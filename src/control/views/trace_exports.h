// Exports the trace of a session as a file. The spans come from this process and from the workers. The file is kept for
// kKept and can be downloaded with a token that cannot be guessed.
//
// One export per user is made at a time. Above kUserBytesMax the user's own oldest file is dropped; above kKeptBytesMax
// the oldest file of the user with the most bytes. A user's newest file is kept as long as the total allows.
//
// Thread-safe. The work is done on the object's own thread.
#pragma once

#include <array>
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
#include "control/accounts/usage.h"
#include "control/queues/disk_worker.h"
#include "control/types/types.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

struct TraceExport {
  enum class State : uint8_t { kPending, kReady, kFailed };
  State state = State::kFailed;
  std::string token = {};  // kReady: opens the file until `expires` (wall clock)
  Nanos expires = 0;
  std::string error = {};  // kFailed: the reason and the cure
};

struct TraceFile {
  std::string name;  // consists of letters, digits, '-', '_' and '.'
  std::shared_ptr<const std::string> json;
};

class TraceExports : public std::enable_shared_from_this<TraceExports> {
 public:
  static constexpr size_t kExportBytes = size_t{4} << 20;  // newest encoded spans of each process
  static constexpr size_t kUserBytesMax = size_t{32} << 20;
  static constexpr size_t kKeptBytesMax = size_t{128} << 20;
  static constexpr Nanos kKept = kHour;

  // `owns` returns whether the session is or was the user's. The references must be valid until stop() returns.
  struct Parts {
    const Clock& clock;
    const ModelBackends& backends;
    std::function<bool(const UserId&, const SessionId&)> owns;
    size_t user_bytes_max = kUserBytesMax;
    size_t kept_bytes_max = kKeptBytesMax;
  };
  explicit TraceExports(Parts parts);

  // Makes an export. Calls `done` once, possibly before make() returns: with kPending if an export of the user is
  // already in progress, else when the export is finished. Returns kNotFound for sessions that are unknown or of
  // another user.
  void make(const UserId& user, const SessionId& session, std::function<void(Result<TraceExport>)> done);
  // Returns the file of a token, or kNotFound for an unknown or expired token.
  Result<TraceFile> open(std::string_view token);
  void stop();

 private:
  struct Job;
  struct Kept {
    UserId user;
    TraceFile file;
    Nanos expires = 0;
    uint64_t number = 0;  // ascending by age, oldest first
  };
  using JobPtr = std::shared_ptr<Job>;
  // The hash of a token, so that the duration of a lookup reveals nothing about existing tokens.
  using Hash = std::array<unsigned char, 32>;

  void gather(const JobPtr& job);
  void write(const JobPtr& job, std::vector<std::string> theirs);
  void finish(const JobPtr& job, TraceExport result);
  std::string keep(const UserId& user, TraceFile file, Nanos expires) TUFT_EXCLUDES(mutex_);
  static Hash hash_of(std::string_view token);
  void drop_expired_locked() TUFT_REQUIRES(mutex_);
  std::map<UserId, size_t> bytes_by_user_locked() const TUFT_REQUIRES(mutex_);
  // Returns the number of bytes dropped.
  size_t drop_oldest_locked(const UserId& user) TUFT_REQUIRES(mutex_);

  const Parts parts_;
  Mutex mutex_;
  std::set<UserId> running_ TUFT_GUARDED_BY(mutex_);
  std::map<Hash, Kept> kept_ TUFT_GUARDED_BY(mutex_);
  uint64_t last_number_ TUFT_GUARDED_BY(mutex_) = 0;
  DiskWorker thread_{8, 64};
};

}  // namespace tuft::control
