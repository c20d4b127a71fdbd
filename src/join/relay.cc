#include "join/relay.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/file.h"
#include "join/message.h"
#include "join/send_progress.h"

// g++ 12 at -O1 reports asio's aligned_alloc for a coroutine frame and asio's own operator delete as a mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace tuft::join {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kBufferBytes = 64 << 10;
constexpr Nanos kGoodbyeTimeout = 500 * kMillisecond;
constexpr int kChecksPerLease = 4;

// Its coroutines hold it. All members but the atomic ones and the descriptors are confined to the IoThread.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(TlsStream stream, RelayOptions options)
      : stream_(std::move(stream)),
        local_(stream_.get_executor()),
        goodbye_(stream_.get_executor()),
        options_(std::move(options)) {}
  ~Relay() {
    if (taken_ >= 0) ::close(taken_);
    if (ended_fd_ >= 0) ::close(ended_fd_);
  }

  Status open() {
    ended_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::array<int, 2> pair{-1, -1};
    if (ended_fd_ < 0 || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0) {
      return file_error("open", "a socket pair", errno);
    }
    taken_ = pair[1];
    local_.assign(asio::local::stream_protocol(), pair[0]);
    return {};
  }

  void start() {
    const auto self = shared_from_this();
    const auto executor = stream_.get_executor();
    asio::co_spawn(
        executor, [self] { return self->copy_out(); }, asio::detached);
    asio::co_spawn(
        executor, [self] { return self->copy_in(); }, asio::detached);
    if (options_.silence_max > 0)
      asio::co_spawn(
          executor, [self] { return self->watch(); }, asio::detached);
    if (options_.progress_period > 0)
      asio::co_spawn(
          executor, [self] { return self->watch_sending(); }, asio::detached);
  }

  // From now on somebody answers, so that the peer has reason to send something.
  int take_descriptor() {
    if (last_received_ != 0) last_received_ = system_clock().monotonic();
    return taken_.exchange(-1);
  }
  int ended_fd() const { return ended_fd_; }
  End end() const { return end_; }
  bool heard() const { return last_received_ != 0; }
  Nanos last_sign() const { return std::max<Nanos>(last_received_, last_taken_); }
  // copy_out() then sees the end of its input, unless it waits for a peer that does not read.
  void close() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      if (self->end_ != End::kOpen) return;
      self->is_closing_ = true;
      error_code ignored;
      self->local_.shutdown(asio::local::stream_protocol::socket::shutdown_receive, ignored);
      self->goodbye_.expires_after(std::chrono::nanoseconds(2 * kGoodbyeTimeout));
      self->goodbye_.async_wait([self](error_code code) {
        if (!code) self->finish(End::kClosed);
      });
    });
  }

 private:
  asio::awaitable<void> copy_out() {
    std::vector<char> buffer(kBufferBytes);
    error_code code;
    for (;;) {
      const size_t size = co_await local_.async_read_some(asio::buffer(buffer), into(code));
      if (code) break;  // a reset, too, is an end in order: its owner left something unread
      co_await asio::async_write(stream_, asio::buffer(buffer.data(), size), into(code));
      if (code) co_return finish(End::kBroken);  // copy_in() may see it later
    }
    if (end_ != End::kOpen) co_return;
    is_closing_ = true;
    const TimeLimit limit(stream_.next_layer(), kGoodbyeTimeout);
    co_await stream_.async_shutdown(into(code));
    finish(End::kClosed);
  }

  asio::awaitable<void> copy_in() {
    std::vector<char> buffer(kBufferBytes);
    size_t untaken_bytes = 0;
    error_code code;
    while (!code) {
      const size_t size = co_await stream_.async_read_some(asio::buffer(buffer), into(code));
      if (!code) last_received_ = system_clock().monotonic();
      untaken_bytes += size;
      if (options_.untaken_bytes_max > 0 && taken_ >= 0 && untaken_bytes > options_.untaken_bytes_max) break;
      error_code local;
      if (!code) co_await asio::async_write(local_, asio::buffer(buffer.data(), size), into(local));
      if (local) co_return;  // copy_out() sees the same end
    }
    finish(code == asio::error::eof ? End::kPeerClosed : End::kBroken);
  }

  asio::awaitable<void> watch() {
    asio::steady_timer timer(stream_.get_executor());
    error_code code;
    while (end_ == End::kOpen) {
      timer.expires_after(std::chrono::nanoseconds(options_.silence_max / kChecksPerLease));
      co_await timer.async_wait(into(code));
      // What came while the process was stopped is read before the timer's turn comes again.
      const bool is_silent =
          last_received_ != 0 && taken_ < 0 && system_clock().monotonic() - last_received_ > options_.silence_max;
      if (std::exchange(was_silent_, is_silent) && is_silent) finish(End::kSilent);
    }
  }

  asio::awaitable<void> watch_sending() {
    asio::steady_timer timer(stream_.get_executor());
    error_code code;
    uint64_t acknowledged = 0;
    while (end_ == End::kOpen) {
      timer.expires_after(std::chrono::nanoseconds(options_.progress_period));
      co_await timer.async_wait(into(code));
      const SendProgress progress = send_progress(stream_.next_layer().native_handle());
      const bool advances = std::exchange(acknowledged, progress.acknowledged_bytes) < progress.acknowledged_bytes;
      if (advances && progress.waiting_bytes > 0) last_taken_ = system_clock().monotonic();
    }
  }

  void finish(End end) {
    if (end_ != End::kOpen) return;
    // A peer that is told goodbye just ends the connection.
    end_ = is_closing_ ? End::kClosed : end;
    error_code ignored;
    goodbye_.cancel();
    local_.close(ignored);
    stream_.next_layer().close(ignored);
    const uint64_t one = 1;
    (void)!::write(ended_fd_, &one, sizeof one);
    // Not within start_relay(), whose caller does not have the connection yet.
    if (options_.on_end)
      asio::post(stream_.get_executor(), [self = shared_from_this()] { self->options_.on_end(self->end_); });
  }

  TlsStream stream_;
  asio::local::stream_protocol::socket local_;
  asio::steady_timer goodbye_;
  const RelayOptions options_;
  std::atomic<Nanos> last_received_ = 0;
  std::atomic<Nanos> last_taken_ = 0;  // the peer took a part of what waited to be sent
  bool is_closing_ = false;
  bool was_silent_ = false;
  std::atomic<int> taken_ = -1;
  int ended_fd_ = -1;
  std::atomic<End> end_ = End::kOpen;
};

class RelayedConnection final : public Connection {
 public:
  explicit RelayedConnection(std::shared_ptr<Relay> relay) : relay_(std::move(relay)) {}
  ~RelayedConnection() override { relay_->close(); }

  int take_descriptor() override { return relay_->take_descriptor(); }
  int ended_fd() const override { return relay_->ended_fd(); }
  End end() const override { return relay_->end(); }
  bool heard() const override { return relay_->heard(); }
  Nanos last_sign() const override { return relay_->last_sign(); }
  void close() override { relay_->close(); }

 private:
  const std::shared_ptr<Relay> relay_;
};

}  // namespace

std::string describe(End end) {
  switch (end) {
    case End::kOpen:
      return "is connected";
    case End::kClosed:
      return "was disconnected";
    case End::kPeerClosed:
      return "closed the connection";
    case End::kBroken:
      return "lost its connection";
    case End::kSilent:
      return "heard nothing for longer than its lease";
  }
  return {};
}

Result<std::unique_ptr<Connection>> start_relay(TlsStream stream, RelayOptions options) {
  const auto relay = std::make_shared<Relay>(std::move(stream), std::move(options));
  TUFT_TRY(relay->open());
  relay->start();
  return std::unique_ptr<Connection>(std::make_unique<RelayedConnection>(relay));
}

}  // namespace tuft::join
