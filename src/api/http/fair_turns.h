// Shares the time of an I/O thread between its clients. A request takes a turn before it is handled. While the thread
// is busy, requests wait for their turns, and the clients take turns, whatever their numbers of connections are: a
// request waits for one request of each other client, and not for all those that one client has sent on a thousand
// connections.
//
// Requests that wait get at most half of the thread's time. The other half is left for what has no turns, such as
// results, new connections and long bodies; and for other threads of the machine: a thread that never sleeps runs late
// whenever it has something to do for somebody else.
//
// Confined to its I/O thread.
#pragma once

#include <cstdint>
#include <functional>

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/fair_queue.h"
#include "control/types/types.h"

namespace tuft::api {

class FairTurns {
 public:
  explicit FairTurns(boost::asio::io_context& io) : io_(io), pause_(io) {}
  FairTurns(const FairTurns&) = delete;
  FairTurns& operator=(const FairTurns&) = delete;

  // Returns true if the caller has its turn at once. Otherwise it must wait().
  bool take();
  // Waits until `client` has a turn. Requires that take() has just returned false.
  boost::asio::awaitable<void> wait(uint64_t client);

  // A user is one client, and so are all strangers of an address group (Endpoints::client_group).
  static uint64_t client_of(const control::UserId& user, uint64_t address_group) {
    return user.empty() ? address_group : std::hash<control::UserId>()(user);
  }

 private:
  struct Waiter {
    boost::asio::any_completion_handler<void()> resume;
    Nanos since = 0;
  };

  void begin_burst();
  void end_burst();
  void give_turns();

  boost::asio::io_context& io_;
  boost::asio::steady_timer pause_;
  FairQueue<uint64_t, Waiter> waiting_{1};
  int taken_ = 0;         // since the last burst
  bool is_busy_ = false;  // end_burst() or give_turns() will run
  Nanos burst_end_ = 0;   // until then turns are taken at once
};

}  // namespace tuft::api
