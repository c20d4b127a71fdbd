#include "join/message.h"

#include <algorithm>
#include <array>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

// g++ 12 at -O1 reports asio's aligned_alloc for a coroutine frame and asio's own operator delete as a mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace tuft::join {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kLengthBytes = 4;
constexpr unsigned kByteBits = 8;

}  // namespace

asio::awaitable<bool> read_message(TlsStream& stream, size_t bytes_max, std::string& message) {
  std::array<unsigned char, kLengthBytes> head{};
  error_code code;
  co_await asio::async_read(stream, asio::buffer(head), into(code));
  if (code) co_return false;
  size_t size = 0;
  for (const unsigned char byte : head) size = size << kByteBits | byte;
  if (size > bytes_max) co_return false;
  message.resize(size);
  co_await asio::async_read(stream, asio::buffer(message), into(code));
  co_return !code;
}

asio::awaitable<bool> write_message(TlsStream& stream, const std::string& message) {
  std::array<unsigned char, kLengthBytes> head{};
  for (size_t i = 0; i < kLengthBytes; ++i) {
    head[i] = static_cast<unsigned char>(message.size() >> (kByteBits * (kLengthBytes - 1 - i)));
  }
  const std::array<asio::const_buffer, 2> pieces{asio::buffer(head), asio::buffer(message)};
  error_code code;
  co_await asio::async_write(stream, pieces, into(code));
  co_return !code;
}

TimeLimit::TimeLimit(asio::ip::tcp::socket& socket, Nanos limit) : timer_(socket.get_executor()) {
  timer_.expires_after(std::chrono::nanoseconds(limit));
  timer_.async_wait([this, &socket, alive = alive_](error_code code) {
    if (code || !*alive) return;
    is_over_ = true;
    error_code ignored;
    socket.close(ignored);
  });
}

void tune(asio::ip::tcp::socket& socket, Nanos silence_max) {
  constexpr int kProbes = 3;
  constexpr unsigned kTriesPerSilence = 8;
  const int on = 1;
  const int seconds = static_cast<int>(std::max<Nanos>(1, silence_max / kSecond / (kProbes + 1)));
  const auto milliseconds = static_cast<unsigned>(silence_max / kMillisecond);
  const int fd = socket.native_handle();
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  // Else what is lost is sent again after twice as long each time, so that a network that works again would be noticed
  // too late. An older kernel than Linux 6.15 does not know this option.
  constexpr int kTcpRtoMaxMs = 44;
  const unsigned again = std::clamp(milliseconds / kTriesPerSilence, 1000U, 120'000U);
  ::setsockopt(fd, IPPROTO_TCP, kTcpRtoMaxMs, &again, sizeof again);
}

}  // namespace tuft::join
