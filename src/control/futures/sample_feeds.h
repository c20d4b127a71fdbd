// The completions of samples, in the order in which they finished, for clients that ask for all of them at once instead
// of polling each future.
//
// A feed belongs to one client of a sampling session: samples are numbered in blocks of kSamplesOfClient, and the block
// is the client's number. Every completion has a cursor; cursors rise, also over restarts of the server, unless the
// wall clock is set back. A client asks for the completions after a cursor, and so confirms those up to it, which are
// forgotten. A cursor that this server has not reached is of a former one with another clock, and confirms nothing.
//
// A completion takes memory only while its future is kept, whose record is charged for it. One that nobody has
// confirmed outlives its future if the client has asked before: it must learn that there is nothing to wait for. Those
// are limited for each user.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/futures/future.h"
#include "control/types/types.h"

namespace tuft::control {

// Not thread-safe: belongs to FutureStore and its lock.
class SampleFeeds {
 public:
  static constexpr int64_t kSamplesOfClient = 1'000'000'000;
  // Completions of one answer, which an I/O thread writes; the rest comes with the next.
  static constexpr size_t kPageMax = 256;
  static constexpr size_t kOutlivingMax = 16'384;  // completions of a user without a future

  using Done = std::function<void(SampleNews)>;
  struct Waiter {
    uint64_t number = 0;
    int64_t after = 0;
    Done done;
  };

  // A sample was admitted. Operations without a number, and others than samples, are ignored here and below.
  void began(const Future& future);
  // It has finished, at this wall clock. Returns those whom news() is to be passed to now.
  std::vector<std::pair<Done, SampleNews>> finished(Future& future, Nanos wall);
  // Its future is not kept any more.
  void forgotten(const Future& future);
  // A sample of a former server process has no result. There is no future of it, but its client may wait.
  void lost(const UserId& user, const RequestId& request, const OperationKeys& keys, Nanos wall);

  // Confirms the completions up to `after`, and returns those that follow.
  SampleNews news(const SampleFeed& feed, int64_t after);
  // Waits for the next completion of a feed without news.
  void wait(const SampleFeed& feed, Waiter waiter);
  // Returns the waiter, if it still waits.
  std::optional<Waiter> take_waiter(const SampleFeed& feed, uint64_t number);
  std::vector<Waiter> take_waiters();

 private:
  struct Completion {
    SampleCompletion what;
    bool has_future = true;
  };
  struct Feed {
    UserId user;
    int64_t unfinished = 0;
    bool was_asked = false;
    std::map<int64_t, Completion> completions;  // by cursor
    std::vector<Waiter> waiters;
  };
  using Feeds = std::map<SampleFeed, Feed>;

  static std::optional<SampleFeed> feed_of(const OperationKeys& keys);
  int64_t next_cursor(Nanos wall);
  bool may_outlive(const UserId& user) const;
  // Returns the cursor up to which a client that asks for what follows `after` has confirmed.
  int64_t confirmed_by(int64_t after) const { return after <= last_cursor_ ? after : 0; }
  SampleNews page(const Feed& feed, int64_t after) const;
  void count_outliving(const UserId& user, int64_t change);
  void drop_if_idle(Feeds::iterator feed);

  Feeds feeds_;
  int64_t last_cursor_ = 0;
  std::unordered_map<UserId, int64_t> outliving_;  // completions without a future; without users who have none
};

}  // namespace tuft::control
