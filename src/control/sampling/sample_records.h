// Records of the sequences that clients sampled with record_stability_info: their tokens and the exact
// log-probabilities. The loss stable_reinforce reads them (docs/losses.md).
//
// A record belongs to the session that sampled, is named by its sequence id, and lives for a day after its last use. It
// ends with its session. Over limits.sample_record_bytes_per_user_max the longest unused records of the user are
// dropped, and over limits.sample_record_bytes_max those of the user who has the most bytes. Records lie in memory: a
// restart of the server loses them.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/ranking.h"
#include "base/sharded_map.h"
#include "config/config.h"
#include "control/sessions/sessions.h"
#include "control/types/types.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

// Thread-safe; its lock is innermost. The lock is held for a few records at a time, however many are dropped.
class SampleRecords {
 public:
  static constexpr Nanos kLife = 24 * 3600 * kSecond;
  // The bytes that a record takes besides its tokens and log-probabilities.
  static constexpr int64_t kEntryBytes = 512;

  struct Record {
    int64_t prompt_tokens = 0;
    std::string tokens;    // i32[n]
    std::string logprobs;  // f32[n]
  };
  using RecordPtr = std::shared_ptr<const Record>;

  // All arguments outlive this.
  SampleRecords(const config::Limits& limits, const Clock& clock, const Sessions& sessions);
  SampleRecords(const SampleRecords&) = delete;
  SampleRecords& operator=(const SampleRecords&) = delete;

  // Keeps the records of a sample of `keys`, which `answer` brings and loses.
  void keep(const OperationKeys& keys, worker::v1::SampleResponse& answer);
  // Returns a record of the session and lets its day begin again; null if there is none.
  RecordPtr use(const UserId& user, const SessionId& session, const std::string& sequence_id);

  // The number of all records, and the bytes that they take.
  size_t size() const;
  int64_t bytes() const;

  // Drops those of a session that ends.
  void close_session(const SessionId& session);
  // Drops those whose day is over.
  void sweep();

 private:
  struct Entry {
    std::string id;
    UserId user;
    SessionId session;
    RecordPtr record;
    int64_t bytes = 0;
    Nanos used = 0;
    std::list<Entry*>::iterator in_session;
  };
  using Entries = std::list<Entry>;
  struct Shelf {
    int64_t bytes = 0;
    Entries entries;  // the longest unused first
  };
  enum class Drop : uint8_t { kLimit, kExpired, kSession };

  void add(Entry entry);
  void drop(Drop why, const SessionId& session = {});
  // Returns the next record to drop; null if there is none.
  Entry* next_locked(Drop why, const SessionId& session) TUFT_REQUIRES(mutex_);
  Entry* next_over_limit_locked() TUFT_REQUIRES(mutex_);
  Entry* next_expired_locked() TUFT_REQUIRES(mutex_);
  void take_out_locked(const Entry& entry, Entries& dropped) TUFT_REQUIRES(mutex_);
  void count_locked(const UserId& user, int64_t change) TUFT_REQUIRES(mutex_);

  const config::Limits limits_;
  const Clock& clock_;
  const Sessions& sessions_;
  mutable Mutex mutex_;
  int64_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;
  ShardedMap<std::string, Entries::iterator> by_id_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, Shelf> shelves_ TUFT_GUARDED_BY(mutex_);
  Ranking<UserId, int64_t> by_bytes_ TUFT_GUARDED_BY(mutex_);  // the users of shelves_
  std::unordered_map<SessionId, std::list<Entry*>> by_session_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
