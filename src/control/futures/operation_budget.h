// Limits of the unfinished operations of a user: how many may be pending, how many samples may be in
// flight, and how many bytes all of them may hold.
//
// A sample counts from its admission to its end, with a future or as a stream. Memory is counted separately, as long as
// its Hold exists. The calls cost a map lookup, whatever others have.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/byte_account.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/types/types.h"

namespace tuft::control {

// Thread-safe. Only the lock of its ByteAccount is taken under its own.
class OperationBudget {
 public:
  // The memory of an operation without its payload.
  static constexpr int64_t kOperationBytes = 1024;

  explicit OperationBudget(const config::Limits& limits);
  OperationBudget(const OperationBudget&) = delete;
  OperationBudget& operator=(const OperationBudget&) = delete;

  // The share of the limits that an operation asks for.
  struct Weight {
    int64_t payload_bytes = 0;  // of a sample also the most that its answer can have
    // It waits for another operation of its run that has not arrived. Such operations may fill only half of the user's
    // memory, so that there is always room for the one that they wait for.
    bool waits_for_gap = false;
    bool is_servers = false;  // no client asked for it: it counts, but no limit applies and it takes no memory
  };

  // Counts an operation with a future until end(). Returns its memory. kResourceExhausted over
  // limits.futures_per_user_max, limits.samples_in_flight_per_user_max and limits.queued_bytes_per_user_max;
  // kPayloadTooLarge if it alone is over the last.
  Result<ByteAccount::Hold> begin(const UserId& user, OperationType operation, const Weight& weight);
  void end(const UserId& user, OperationType operation);
  // Counts a sample without a future until end_stream(). The same errors.
  Result<ByteAccount::Hold> begin_stream(const UserId& user, int64_t payload_bytes);
  void end_stream(const UserId& user);
  // Returns memory for what will become an operation. The same errors.
  Result<ByteAccount::Hold> take_memory(const UserId& user, int64_t payload_bytes);

  // What the user has of each: unfinished operations, samples in flight, and bytes of memory.
  struct Use {
    int64_t pending = 0, samples = 0, bytes = 0;
  };
  Use use_of(const UserId& user) const;
  // The memory of all operations of all users.
  int64_t bytes() const { return memory_->total(); }
  // Returns in words which limit the user is at; nothing if at none.
  std::optional<std::string> limit_reached(const UserId& user) const;

 private:
  struct Load {
    int pending = 0;
    int samples = 0;              // with a future, and streams
    bool is_memory_full = false;  // the newest operation found no room
  };

  Status check_samples_locked(const UserId& user) const TUFT_REQUIRES(mutex_);
  Result<ByteAccount::Hold> take_memory_locked(const UserId& user, int64_t payload_bytes, bool waits_for_gap)
      TUFT_REQUIRES(mutex_);
  Load load_locked(const UserId& user) const TUFT_REQUIRES(mutex_);
  void add_locked(const UserId& user, int pending, int samples) TUFT_REQUIRES(mutex_);

  const int pending_max_;
  const int samples_max_;
  const int64_t bytes_max_;
  const std::shared_ptr<ByteAccount> memory_ = std::make_shared<ByteAccount>();  // by user
  mutable Mutex mutex_;
  std::unordered_map<UserId, Load> load_by_user_ TUFT_GUARDED_BY(mutex_);  // without those who have nothing
};

}  // namespace tuft::control
