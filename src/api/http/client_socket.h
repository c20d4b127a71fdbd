// A client's connection as a byte stream with deadlines: every read, write and wait is ended by the client, by a
// deadline or by the server's stop. It knows nothing of HTTP. Confined to its IoThread.
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

#include "api/http/io_thread.h"
#include "api/http/transport.h"
#include "api/http/write_pace.h"
#include "base/clock.h"

namespace tuft::api {

inline constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

// The state of one wait for a value from another thread. Confined to the connection's thread.
struct Waiting {
  explicit Waiting(boost::asio::io_context& io) : timer(io) {}

  boost::asio::steady_timer timer;
  bool arrived = false;
  bool peer_gone = false;
  bool end_is_hidden = false;  // the client's end would lie behind bytes that are not read
  bool over = false;           // the wait has ended; a value that arrives now is dropped
};

template <typename T>
struct WaitFor : Waiting {
  using Waiting::Waiting;
  std::optional<T> value;
};

// A callback, for any thread, that passes a value to the connection that waits for it. A late value is dropped. `io` is
// declared first because it must be destroyed last.
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
    // A client that disconnects ends the wait. A few KiB of what it sends meanwhile are read, the rest stays in the
    // kernel; after more than that, only the next enforce_deadline() notices the end.
    bool watches_peer = true;
    bool until_arrival = false;  // nothing but the arrival ends the wait
    bool ends_at_stop = false;   // true: the server's stop ends the wait; false: the end of the grace period does
  };

  ClientSocket(IoThread& thread, Transport::Socket socket, TlsContext* tls);
  ~ClientSocket();
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  // Enters a phase that may last for `limit`.
  void enter(Phase phase, Nanos limit);
  Phase phase() const { return phase_; }
  void forget_timeout() { expired_ = false; }

  // Does the TLS handshake, in turns of the client's address, and returns whether it succeeded. Returns true at once
  // without TLS.
  boost::asio::awaitable<bool> handshake(uint64_t address_group);
  // Waits for bytes, reads up to `room_bytes`, and appends them to buffer().
  boost::asio::awaitable<Fill> fill(size_t room_bytes);
  // Bytes that were received and not consumed.
  boost::beast::flat_buffer& buffer() { return buffer_; }
  // Drops them, and their memory, before a connection closes: nobody is charged for it any more.
  void drop_received();
  // Begins the measurement of how fast the client reads (WritePace).
  void begin_answer() { pace_.begin(); }
  // Writes `first`, then `second`. Returns false if it fails, for instance because the client reads too slowly.
  boost::asio::awaitable<bool> write(std::string_view first, std::string_view second);
  // Waits until an Arrival completes `waiting` or one of `limits` ends the wait.
  boost::asio::awaitable<WaitEnd> wait(std::shared_ptr<Waiting> waiting, WaitLimits limits);
  // Shuts down sending, then reads and discards what the client still sends. Closing at once would reset the
  // connection, and the client might never see the answer.
  boost::asio::awaitable<void> linger();
  // Closes the connection, after the TLS shutdown if there is TLS.
  boost::asio::awaitable<void> close();

  // See the functions of the same names in HttpConnection.
  void enforce_deadline(Nanos now);
  void wind_down();
  void abort();

 private:
  bool ended() const { return expired_ || aborted_; }
  void watch_peer(const std::shared_ptr<Waiting>& waiting);
  bool peer_has_ended();

  IoThread& thread_;
  Transport transport_;
  boost::beast::flat_buffer buffer_;
  std::shared_ptr<Waiting> waiting_;
  Phase phase_ = Phase::kIdle;
  Nanos deadline_ = kForever;
  WritePace pace_;
  bool expired_ = false;  // the deadline of the phase has passed
  bool aborted_ = false;  // the server's grace period is over
  bool secured_ = false;  // the TLS handshake is done
};

}  // namespace tuft::api
