// Which of several servers with one store leads: it alone writes and has workers, and the others stand by.
//
// The leader holds a lease, which it renews three times in its length; the lease of a leader that is gone ends by
// itself. Each time that a server becomes the leader is a term with a higher number, its epoch. The store refuses every
// write of an earlier term (Fence), so what a server believes of itself decides nothing about the state. What lies
// outside of the store it must not touch after its lease: it counts the lease by its own clock, from before the request
// that renewed it was sent, and on_lost() has to end it.
//
// A leader that no server stands by for is not ended when it cannot reach the store: nobody could take its place. It
// goes on with its term when the store is back, unless another server has become the leader meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"

namespace tuft::store {

// What a store compares before each write.
struct Fence {
  std::string key;    // holds the token of the newest term
  std::string token;  // of the server's own term
  // A write was refused: another server leads. Called on the store's thread; may be called again.
  std::function<void()> on_refused;
};

// The lease in the store. Confined to one thread at a time; calls block. Errors are those of the store.
class Lease {
 public:
  virtual ~Lease() = default;

  struct Standing {
    bool leads = false;      // this server has the lease: a new term of its own has begun
    uint64_t epoch = 0;      // of the newest term
    std::string leader;      // the address of the server that leads
    Nanos ends_in = 0;       // the rest of its lease
    std::string token = {};  // of the own term
  };
  // Takes the lease for `length` if nobody holds it. Otherwise makes known that a server stands by, for as long.
  // `address` is that of this server, for those who find that it leads.
  virtual Result<Standing> take(Nanos length, const std::string& address) = 0;

  struct Renewal {
    bool leads = false;        // false: another term has begun
    bool has_standby = false;  // a server stands by
  };
  // Prolongs the lease of the own term to `length` from now, even if it had ended. Requires that take() gave it.
  virtual Result<Renewal> renew(Nanos length, const std::string& address) = 0;
  // Ends the lease of the own term.
  virtual Status release() = 0;
  // The key of the token, for Fence.
  virtual std::string fence_key() const = 0;
};

enum class LeaderLoss : uint8_t {
  kSuperseded,  // another server leads
  kLapsed,      // the lease could not be renewed in time, and a server stands by
  kFenced,      // the store refused a write, because another server leads
};
std::string_view loss_name(LeaderLoss loss);

// Thread-safe, except campaign() and resign(), which belong to one thread.
class Leadership {
 public:
  struct Options {
    Nanos lease = 3 * kSecond;
    std::string address;  // of this server, for the others
    // Called once, on a thread of this object or of the store, when this server must not act as the leader any more. It
    // must end the process, or what it does as the leader, at once.
    std::function<void(LeaderLoss)> on_lost;
  };

  Leadership(std::unique_ptr<Lease> lease, Options options);
  // Does not give the lease up.
  ~Leadership();
  Leadership(const Leadership&) = delete;
  Leadership& operator=(const Leadership&) = delete;

  // Tries once to become the leader, and blocks as long as the store does. If `leads`, the lease is kept from now on.
  Result<Lease::Standing> campaign();
  // Changes the address, from the next renewal on.
  void set_address(const std::string& address) TUFT_EXCLUDES(mutex_);
  // Returns true while this server may act as the leader.
  bool leads() const;
  // The number of the own term; 0 before it.
  uint64_t epoch() const { return epoch_; }
  // For the store that is to be written. Requires that campaign() succeeded. Must not be used longer than this object.
  Fence fence();
  // Ends the own term, so that another server need not wait for the lease. The store must have been closed before. Has
  // no effect if this server does not lead.
  void resign();

 private:
  void keep();
  void watch();
  void lose(LeaderLoss loss);
  void stop_threads() TUFT_EXCLUDES(mutex_);
  bool wait_for(Nanos time) TUFT_EXCLUDES(mutex_);
  std::string address() TUFT_EXCLUDES(mutex_);

  const std::unique_ptr<Lease> lease_;
  const Options options_;
  std::string token_;
  std::atomic<uint64_t> epoch_ = 0;
  std::atomic<bool> lost_ = false;
  std::atomic<bool> has_standby_ = false;  // as the store said last
  std::atomic<Nanos> valid_until_ = 0;     // the end of the lease; 0: no term yet

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;
  std::string address_ TUFT_GUARDED_BY(mutex_);
  std::thread keeper_;   // renews
  std::thread watcher_;  // sees the end of the lease, even while the keeper waits for the store
};

}  // namespace tuft::store
