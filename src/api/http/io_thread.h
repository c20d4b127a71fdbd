// An I/O thread: an event loop, its connections, and the objects that they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>  // Boost 1.83's asio uses std::exchange without it

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "api/http/fair_turns.h"
#include "api/routing/dispatcher.h"
#include "api/routing/metrics_page.h"
#include "api/routing/request_telemetry.h"
#include "base/byte_account.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::api {

class HttpConnection;

// Counts the connections of all threads. Thread-safe.
class ConnectionCounts {
 public:
  enum class Entry : uint8_t { kTaken, kTooMany, kTooManyOfAddress };

  explicit ConnectionCounts(const config::Limits& limits) : limits_(limits) {}

  // Admits a connection from an address group (see Endpoints::client_group). Each kTaken requires one leave().
  Entry enter(uint64_t address_group) TUFT_EXCLUDES(mutex_);
  void leave(uint64_t address_group) TUFT_EXCLUDES(mutex_);

  int open() const { return open_.load(std::memory_order_relaxed); }
  std::atomic<int> idle{0};  // connections that wait for their next request

  // Counts the memory of long heads of requests that are not answered, by user, or by address group until the user is
  // known (limits.unfinished_head_bytes_max).
  const std::shared_ptr<ByteAccount> heads = std::make_shared<ByteAccount>();
  // Counts the memory of bodies that are being received, by user (limits.receiving_bytes_max).
  const std::shared_ptr<ByteAccount> bodies = std::make_shared<ByteAccount>();
  // Counts the memory of answers that wait to be read, by user (limits.sending_bytes_max).
  const std::shared_ptr<ByteAccount> answers = std::make_shared<ByteAccount>();

 private:
  const config::Limits& limits_;
  std::atomic<int> open_{0};
  Mutex mutex_;
  std::unordered_map<uint64_t, int> of_address_ TUFT_GUARDED_BY(mutex_);
};

// What these accounts may hold: one address or user a quarter of all heads, one user half of all bodies, but at least
// one of maximum size, and half of all answers.
ByteAccount::Most most_heads(const config::Limits& limits);
ByteAccount::Most most_bodies(const config::Limits& limits);
ByteAccount::Most most_answers(const config::Limits& limits);

// All members except `io` are confined to the thread that runs `io`; other threads post to `io`.
struct IoThread {
  IoThread(const Dispatcher& shared_dispatcher, Nanos longest_poll, ConnectionCounts& connection_counts,
           std::shared_ptr<MetricsPage> page, std::string_view scheme)
      : dispatcher(shared_dispatcher),
        limits(shared_dispatcher.limits()),
        long_poll(longest_poll),
        instruments(shared_dispatcher.router().size(), scheme),
        counts(connection_counts),
        metrics_page(std::move(page)) {}

  const Dispatcher& dispatcher;
  const config::Limits& limits;
  const Nanos long_poll;
  HttpTelemetry instruments;
  std::unordered_set<HttpConnection*> connections;
  ConnectionCounts& counts;
  const std::shared_ptr<MetricsPage> metrics_page;
  std::string date;  // the Date header; updated by the server's tick
  bool stopping = false;
  // Shared because a future that finishes late still refers to it. Its destruction ends the connections that still wait
  // in it, and these use the members above.
  std::shared_ptr<boost::asio::io_context> io = std::make_shared<boost::asio::io_context>(1);
  boost::asio::steady_timer tick{*io};
  FairTurns turns{*io};  // its destruction ends the connections that wait in it, as that of `io` does
};

}  // namespace tuft::api
