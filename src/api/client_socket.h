// One client's connection as bytes and time: every read, write and wait on it ends by the client, by a deadline or by
// the server's stop. Knows nothing of HTTP. Confined to its IoThread.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "api/io_thread.h"
#include "api/transport.h"
#include "base/clock.h"

namespace tuft::api {

inline constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

// Where what is waited for, the clock and the client meet. Confined to the connection's thread.
struct Waiting {
  explicit Waiting(boost::asio::io_context& io) : timer(io) {}

  boost::asio::steady_timer timer;
  bool arrived = false;
  bool peer_gone = false;
  bool over = false;  // nobody waits any more
};

template <typename T>
struct WaitFor : Waiting {
  using Waiting::Waiting;
  std::optional<T> value;
};

// Brings a value from any thread to the connection that waits for it; one that comes late is dropped. `io` comes first,
// so that it goes last.
template <typename T>
struct Arrival {
  std::shared_ptr<boost::asio::io_context> io;
  std::shared_ptr<WaitFor<T>> wait;

  void operator()(T value) const {
    boost::asio::dispatch(*io, [target = wait, value = std::move(value)]() mutable {
      if (target->arrived || target->over) return;
      target->arrived = true;
      target->value.emplace(std::move(value));
      target->timer.cancel();
    });
  }
};

class ClientSocket {
 public:
  enum class Phase : uint8_t { kIdle, kReading, kWorking, kWriting, kLingering };
  enum class Fill : uint8_t { kDone, kClosed, kTimedOut };
  enum class WaitEnd : uint8_t { kArrived, kTimedOut, kPeerGone, kStopped };
  struct WaitLimits {
    Nanos time = kForever;
    bool watches_peer = true;   // a client that goes away ends it
    bool ends_at_stop = false;  // the server's stop ends it at once; else the end of the grace does
  };

  ClientSocket(IoThread& thread, Transport::Socket socket, TlsContext* tls);
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  // What the connection does, and for how long it may.
  void enter(Phase phase, Nanos limit);
  Phase phase() const { return phase_; }
  void forget_timeout() { expired_ = false; }

  // True at once where there is no TLS.
  boost::asio::awaitable<bool> handshake();
  // Waits for more bytes, up to so many, and appends them to the buffer.
  boost::asio::awaitable<Fill> fill(size_t room_bytes);
  // Bytes that came and were not looked at yet.
  boost::beast::flat_buffer& buffer() { return buffer_; }
  // Writes both, all of them; gives up where the client takes nothing for a while. False where it did not work.
  boost::asio::awaitable<bool> write(std::string_view first, std::string_view second);
  // Waits for `waiting`, which an Arrival ends.
  boost::asio::awaitable<WaitEnd> wait(std::shared_ptr<Waiting> waiting, WaitLimits limits);
  // Says that no more will come, and reads what the client still sends: closing at once would reset the connection, and
  // the client might never see the answer.
  boost::asio::awaitable<void> linger();
  // Says goodbye where TLS wants that, and closes.
  boost::asio::awaitable<void> close();

  // Called by the thread's tick and stop; see HttpConnection.
  void enforce_deadline(Nanos now);
  void wind_down();
  void abort();

 private:
  bool ended() const { return expired_ || aborted_; }
  void watch_peer(const std::shared_ptr<Waiting>& waiting);

  IoThread& thread_;
  Transport transport_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<Waiting> waiting_;
  Phase phase_ = Phase::kIdle;
  Nanos deadline_ = kForever;
  bool expired_ = false;  // the deadline of the phase passed
  bool aborted_ = false;  // the server's grace is over
  bool secured_ = false;  // the handshake of TLS is done
};

}  // namespace tuft::api
