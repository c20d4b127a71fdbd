// The trace of a session as a file to fetch: gathered from this process and the workers, kept for a while under an
// address that nobody can guess.
//
// No user is in another's way: of each one export is made at a time; over kUserBytesMax a user's own oldest file goes,
// and over kKeptBytesMax the oldest of whoever keeps most. The newest file of a user stays as long as the total allows.
//
// Thread-safe. Works on a thread of its own.
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
  static constexpr size_t kUserBytesMax = size_t{32} << 20;
  static constexpr size_t kKeptBytesMax = size_t{128} << 20;
  static constexpr Nanos kKept = kHour;

  // `owns`: whether the session is, or was, the user's. What is borrowed outlives stop().
  struct Parts {
    const Clock& clock;
    const ModelBackends& backends;
    std::function<bool(const UserId&, const SessionId&)> owns;
    size_t user_bytes_max = kUserBytesMax;
    size_t kept_bytes_max = kKeptBytesMax;
  };
  explicit TraceExports(Parts parts);

  // `done` is called once, perhaps before this returns: with kPending where an export of the user is being made
  // already, else when it is made. Unknown and foreign sessions are the same kNotFound.
  void make(const UserId& user, const SessionId& session, std::function<void(Result<TraceExport>)> done);
  // kNotFound for what was never ours and what has expired.
  Result<TraceFile> open(std::string_view token);
  void stop();

 private:
  struct Job;
  struct Kept {
    UserId user;
    TraceFile file;
    Nanos expires = 0;
    uint64_t number = 0;  // the oldest has the lowest
  };
  using JobPtr = std::shared_ptr<Job>;
  // Of a token, so that how long a lookup takes says nothing about the tokens that there are.
  using Hash = std::array<unsigned char, 32>;

  void gather(const JobPtr& job);
  void write(const JobPtr& job, std::vector<std::string> theirs);
  void finish(const JobPtr& job, TraceExport result);
  std::string keep(const UserId& user, TraceFile file, Nanos expires) TUFT_EXCLUDES(mutex_);
  static Hash hash_of(std::string_view token);
  void drop_expired_locked() TUFT_REQUIRES(mutex_);
  std::map<UserId, size_t> bytes_by_user_locked() const TUFT_REQUIRES(mutex_);
  // How many bytes that were.
  size_t drop_oldest_locked(const UserId& user) TUFT_REQUIRES(mutex_);

  const Parts parts_;
  Mutex mutex_;
  std::set<UserId> running_ TUFT_GUARDED_BY(mutex_);
  std::map<Hash, Kept> kept_ TUFT_GUARDED_BY(mutex_);
  uint64_t last_number_ TUFT_GUARDED_BY(mutex_) = 0;
  DiskWorker thread_{8, 64};
};

}  // namespace tuft::control
