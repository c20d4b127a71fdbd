// The messages before a connection carries gRPC: each follows its length, four bytes, the most significant first.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/clock.h"
#include "join/tls.h"

namespace tuft::join {

// Makes a coroutine wait, and puts an error into `code` instead of throwing it.
inline auto into(boost::system::error_code& code) {
  return boost::asio::redirect_error(boost::asio::use_awaitable, code);
}

inline constexpr size_t kRequestBytesMax = 64 << 10;
inline constexpr size_t kResponseBytesMax = 4 << 20;

// Returns false if the connection ends, or the message is longer than `bytes_max`.
boost::asio::awaitable<bool> read_message(TlsStream& stream, size_t bytes_max, std::string& message);
boost::asio::awaitable<bool> write_message(TlsStream& stream, const std::string& message);

// Closes a socket when the time is over, which ends what waits for it. Confined to the socket's thread, as long as it
// exists.
class TimeLimit {
 public:
  TimeLimit(boost::asio::ip::tcp::socket& socket, Nanos limit);
  ~TimeLimit() { *alive_ = false; }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  bool is_over() const { return is_over_; }

 private:
  boost::asio::steady_timer timer_;
  bool is_over_ = false;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// Sends without delay, and notices a peer that is gone within `silence_max`.
void tune(boost::asio::ip::tcp::socket& socket, Nanos silence_max);

}  // namespace tuft::join
