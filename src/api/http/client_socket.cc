#include "api/http/client_socket.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <poll.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "api/routing/http_telemetry.h"

// g++ 12 at -O1 reports asio's aligned_alloc for a coroutine frame and asio's own operator delete as a mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace tuft::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using boost::system::error_code;

// Nobody is charged for what is read from a client that keeps sending while it waits.
constexpr size_t kUnreadBytesMax = 4 << 10;
constexpr size_t kLingerRoomBytes = 4 << 10;  // nor for what is read from one that is refused
constexpr Nanos kHandshakeTimeout = 10 * kSecond;
constexpr Nanos kLingerTimeout = 2 * kSecond;

auto into(error_code& code) {
  return asio::redirect_error(asio::use_awaitable, code);
}

}  // namespace

ClientSocket::ClientSocket(IoThread& thread, Transport::Socket socket, TlsContext* tls)
    : thread_(thread),
      transport_(std::move(socket), tls),
      pace_(thread.limits.answer_stall_seconds, thread.limits.answer_rate_min) {
  thread_.counts.idle.fetch_add(1, std::memory_order_relaxed);
}

ClientSocket::~ClientSocket() {
  if (phase_ == Phase::kIdle) thread_.counts.idle.fetch_sub(1, std::memory_order_relaxed);
}

void ClientSocket::enter(Phase phase, Nanos limit) {
  const int idle = static_cast<int>(phase == Phase::kIdle) - static_cast<int>(phase_ == Phase::kIdle);
  if (idle != 0) thread_.counts.idle.fetch_add(idle, std::memory_order_relaxed);
  phase_ = phase;
  deadline_ = limit == kForever ? kForever : system_clock().monotonic() + limit;
}

void ClientSocket::enforce_deadline(Nanos now) {
  if (waiting_ && waiting_->end_is_hidden && peer_has_ended()) {
    waiting_->peer_gone = true;
    waiting_->timer.cancel();
  }
  if (now < deadline_) return;
  deadline_ = kForever;
  expired_ = true;
  error_code ignored;
  transport_.socket().cancel(ignored);
}

void ClientSocket::wind_down() {
  if (waiting_) waiting_->timer.cancel();
  if (phase_ == Phase::kIdle) abort();
}

void ClientSocket::abort() {
  aborted_ = true;
  if (waiting_) waiting_->timer.cancel();
  error_code ignored;
  transport_.socket().cancel(ignored);
}

// The signature takes up to a millisecond, so each step waits for a turn. What a step sends is far smaller than the
// socket's buffer, so that only reading can block.
awaitable<bool> ClientSocket::handshake(uint64_t address_group) {
  if (transport_.tls() == nullptr) co_return true;
  enter(Phase::kReading, kHandshakeTimeout);
  error_code code = asio::error::would_block;
  while (code == asio::error::would_block) {
    co_await transport_.socket().async_wait(Transport::Socket::wait_read, into(code));
    if (code) break;
    if (!thread_.turns.take()) co_await thread_.turns.wait(address_group);
    if (ended()) break;
    transport_.tls()->handshake(asio::ssl::stream_base::server, code);
  }
  secured_ = !code && !ended();
  if (!secured_) HttpTelemetry::count_rejected("tls_handshake");
  co_return secured_;
}

awaitable<ClientSocket::Fill> ClientSocket::fill(size_t room_bytes) {
  error_code code;
  const size_t size = co_await transport_.async_read_some(buffer_.prepare(room_bytes), into(code));
  buffer_.commit(size);
  if (!code) co_return Fill::kDone;
  co_return ended() && phase_ == Phase::kReading ? Fill::kTimedOut : Fill::kClosed;
}

void ClientSocket::drop_received() {
  buffer_.clear();
  buffer_.shrink_to_fit();
}

awaitable<bool> ClientSocket::write(std::string_view first, std::string_view second) {
  std::array<asio::const_buffer, 2> pieces{asio::buffer(first), asio::buffer(second)};
  size_t left = first.size() + second.size();
  error_code code;
  // Most answers fit into the socket's buffer, so that no wait is needed.
  size_t sent = transport_.write_now(pieces, code);
  if (code == asio::error::would_block) code.clear();
  while (!code && (left -= sent) > 0) {
    if (ended()) co_return false;
    const size_t of_first = std::min(sent, pieces[0].size());
    pieces = {pieces[0] + of_first, pieces[1] + (sent - of_first)};
    enter(Phase::kWriting, pace_.left());
    const Nanos begin = system_clock().monotonic();
    sent = co_await transport_.async_write_some(pieces, into(code));
    pace_.took(static_cast<int64_t>(sent), system_clock().monotonic() - begin);
  }
  co_return !code;
}

awaitable<ClientSocket::WaitEnd> ClientSocket::wait(std::shared_ptr<Waiting> waiting, WaitLimits limits) {
  if (!waiting->arrived) {
    waiting_ = waiting;
    enter(Phase::kWorking, kForever);
    buffer_.shrink_to_fit();
    if (limits.time == kForever) {
      waiting->timer.expires_at(asio::steady_timer::time_point::max());
    } else {
      waiting->timer.expires_after(std::chrono::nanoseconds(limits.time));
    }
    if (limits.watches_peer) watch_peer(waiting);
    error_code code;
    const auto is_over = [&] {
      if (waiting->arrived || limits.until_arrival) return waiting->arrived;
      return waiting->peer_gone || ended() || (limits.ends_at_stop && thread_.stopping);
    };
    while (!is_over()) {
      co_await waiting->timer.async_wait(into(code));
      if (!code) break;
    }
    waiting_.reset();
    error_code ignored;
    if (limits.watches_peer) transport_.socket().cancel(ignored);
  }
  waiting->over = true;
  if (waiting->arrived) co_return WaitEnd::kArrived;
  if (waiting->peer_gone) co_return WaitEnd::kPeerGone;
  if (ended() || (limits.ends_at_stop && thread_.stopping)) co_return WaitEnd::kStopped;
  co_return WaitEnd::kTimedOut;
}

// Keeps reading, because a pipelined request would hide the end of the stream; stops at kUnreadBytesMax.
void ClientSocket::watch_peer(const std::shared_ptr<Waiting>& waiting) {
  waiting->end_is_hidden = buffer_.size() >= kUnreadBytesMax;
  if (waiting->end_is_hidden) return;
  transport_.socket().async_wait(Transport::Socket::wait_read, [this, waiting](error_code code) {
    if (code || waiting->over) return;
    const size_t size = transport_.read_now(buffer_.prepare(kUnreadBytesMax - buffer_.size()), code);
    buffer_.commit(size);
    if (buffer_.size() == 0) buffer_.shrink_to_fit();
    if (!code || code == asio::error::would_block) return watch_peer(waiting);
    waiting->peer_gone = true;
    waiting->timer.cancel();
  });
}

// asio does not wait for EPOLLRDHUP, the end of a stream with bytes before it.
bool ClientSocket::peer_has_ended() {
  pollfd state{transport_.socket().native_handle(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) == 1;
}

awaitable<void> ClientSocket::linger() {
  error_code code;
  enter(Phase::kLingering, kLingerTimeout);
  if (secured_) co_await transport_.tls()->async_shutdown(into(code));
  secured_ = false;
  transport_.socket().shutdown(Transport::Socket::shutdown_send, code);
  while (!code && !ended()) {
    co_await transport_.socket().async_read_some(buffer_.prepare(kLingerRoomBytes), into(code));
  }
}

awaitable<void> ClientSocket::close() {
  error_code ignored;
  drop_received();
  if (secured_ && !aborted_) {
    expired_ = false;
    enter(Phase::kLingering, kLingerTimeout);
    co_await transport_.tls()->async_shutdown(into(ignored));
  }
  transport_.socket().close(ignored);
}

}  // namespace tuft::api
