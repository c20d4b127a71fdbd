// One I/O thread: an event loop, the connections it serves, and what they share. Everything in it but `io` is confined
// to the thread that runs `io`; other threads post to `io`.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>  // Boost 1.83's asio uses std::exchange without it

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "api/dispatcher.h"
#include "api/metrics_page.h"
#include "api/request_record.h"
#include "base/clock.h"

namespace tuft::api {

class HttpConnection;

// Time limits of connections; see Server::Options.
struct ConnectionLimits {
  Nanos long_poll = 0;
  Nanos idle_timeout = 0;
  Nanos read_timeout = 0;
};

// Connections of all threads.
struct ConnectionCounts {
  std::atomic<int> open{0};
  std::atomic<int> idle{0};  // of them: between two requests
};

struct IoThread {
  IoThread(const Dispatcher& shared_dispatcher, const ConnectionLimits& connection_limits,
           ConnectionCounts& connection_counts, std::shared_ptr<MetricsPage> page)
      : dispatcher(shared_dispatcher),
        limits(connection_limits),
        instruments(shared_dispatcher.router().size()),
        counts(connection_counts),
        metrics_page(std::move(page)) {}

  const Dispatcher& dispatcher;
  const ConnectionLimits limits;
  HttpInstruments instruments;
  std::unordered_set<HttpConnection*> connections;
  ConnectionCounts& counts;
  const std::shared_ptr<MetricsPage> metrics_page;
  std::string date;  // of the Date header; refreshed by the server's tick
  bool stopping = false;
  // Shared, because a future that finishes late still holds the way back to its connection. Destroying it ends the
  // connections that still wait in it, which use the members above.
  std::shared_ptr<boost::asio::io_context> io = std::make_shared<boost::asio::io_context>(1);
  boost::asio::steady_timer tick{*io};
};

}  // namespace tuft::api
