#include "api/http_connection.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>

#include "api/error_mapping.h"
#include "api/handlers.h"
#include "api/response_head.h"
#include "base/id.h"
#include "telemetry/log.h"

// g++ 12 at -O1 takes asio's aligned_alloc for a coroutine frame and asio's matching operator delete for strangers.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace tuft::api {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::awaitable;
using boost::system::error_code;

constexpr uint32_t kHeaderBytesMax = 16 << 10;
constexpr size_t kHeadRoomBytes = 4 << 10;
constexpr size_t kBodyRoomBytes = 64 << 10;
// The body of a refused request is read to its end if it is this short, so that the connection can go on.
constexpr uint64_t kSkippedBytesMax = 64 << 10;
// Bodies up to here travel in one piece with their head.
constexpr size_t kJoinedBytesMax = 16 << 10;
constexpr Nanos kWriteTimeout = 60 * kSecond;
constexpr Nanos kMetricsTimeout = 1500 * kMillisecond;          // over actor::kCollectTimeout
constexpr Nanos kAnswerTimeout = 50 * kSecond;                  // under the SDK's 60 s
constexpr auto kDurableCheck = std::chrono::milliseconds(250);  // whether the connection was given up meanwhile
constexpr Nanos kLingerTimeout = 2 * kSecond;
constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

auto into(error_code& code) {
  return asio::redirect_error(asio::use_awaitable, code);
}

}  // namespace

// Where the three ends of a long poll meet: the future, the clock, the client. Confined to the connection's thread.
struct HttpConnection::Poll {
  explicit Poll(asio::io_context& io) : timer(io) {}

  asio::steady_timer timer;
  std::optional<Result<control::FutureSnapshot>> outcome;
  bool peer_gone = false;
};

// Brings a finished future to its connection's thread. `io` comes first, so that it goes last.
struct HttpConnection::Arrival {
  std::shared_ptr<asio::io_context> io;
  std::shared_ptr<Poll> poll;

  void operator()(Result<control::FutureSnapshot> snapshot) const {
    asio::dispatch(*io, [target = poll, snapshot = std::move(snapshot)]() mutable {
      if (!target->outcome) target->outcome.emplace(std::move(snapshot));
      target->timer.cancel();
    });
  }
};

HttpConnection::HttpConnection(IoThread& thread, asio::ip::tcp::socket socket, Endpoints endpoints)
    : thread_(thread), socket_(std::move(socket)), endpoints_(std::move(endpoints)) {
  thread_.connections.insert(this);
  thread_.counts.idle.fetch_add(1, std::memory_order_relaxed);
}

HttpConnection::~HttpConnection() {
  thread_.connections.erase(this);
  if (phase_ == Phase::kIdle) thread_.counts.idle.fetch_sub(1, std::memory_order_relaxed);
  thread_.counts.open.fetch_sub(1, std::memory_order_relaxed);
}

void HttpConnection::enter(Phase phase, Nanos limit) {
  const int idle = static_cast<int>(phase == Phase::kIdle) - static_cast<int>(phase_ == Phase::kIdle);
  if (idle != 0) thread_.counts.idle.fetch_add(idle, std::memory_order_relaxed);
  phase_ = phase;
  deadline_ = limit == kForever ? kForever : system_clock().monotonic() + limit;
}

void HttpConnection::enforce_deadline(Nanos now) {
  if (now < deadline_) return;
  deadline_ = kForever;
  expired_ = true;
  error_code ignored;
  socket_.cancel(ignored);
}

void HttpConnection::wind_down() {
  if (poll_) poll_->timer.cancel();
  if (phase_ == Phase::kIdle) abort();
}

void HttpConnection::abort() {
  expired_ = true;
  if (poll_) poll_->timer.cancel();
  error_code ignored;
  socket_.cancel(ignored);
}

awaitable<void> HttpConnection::serve(std::shared_ptr<HttpConnection> self) {
  try {
    while (co_await self->serve_one()) {
    }
  } catch (const std::exception& exception) {
    telemetry::log_error("http.connection.failed", exception.what());
  }
  error_code ignored;
  self->socket_.close(ignored);
}

// True if the connection can take another request.
awaitable<bool> HttpConnection::serve_one() {
  const Read outcome = co_await read_head();
  if (outcome == Read::kClosed) co_return false;
  if (outcome != Read::kDone) {
    const std::optional<Response> refusal = refusal_of(outcome);
    co_return co_await write_and_close(*refusal);
  }

  RequestHead head = parse_head(*parser_);
  head.client_is_local = endpoints_.client_is_local;
  head.client_address = endpoints_.client_address;
  Admission admission = thread_.dispatcher.admit(head);
  RequestRecord record(thread_.instruments, endpoints_, head, admission.match.route, request_start_);
  const bool again = co_await answer(head, std::move(admission), record);
  parser_.reset();
  co_return again;
}

// ---- reading

awaitable<HttpConnection::Read> HttpConnection::fill(size_t room_bytes) {
  error_code code;
  const size_t size = co_await socket_.async_read_some(buffer_.prepare(room_bytes), into(code));
  buffer_.commit(size);
  if (!code) co_return Read::kDone;
  co_return expired_&& phase_ == Phase::kReading ? Read::kTimedOut : Read::kClosed;
}

awaitable<HttpConnection::Read> HttpConnection::read_head() {
  if (thread_.stopping) co_return Read::kClosed;
  parser_.emplace();
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(boost::none);  // judged once the route is known
  enter(Phase::kIdle, thread_.limits.idle_timeout);
  while (true) {
    if (buffer_.size() > 0) {
      if (phase_ == Phase::kIdle) {
        request_start_ = system_clock().monotonic();
        enter(Phase::kReading, thread_.limits.read_timeout);
      }
      error_code code;
      buffer_.consume(parser_->put(buffer_.data(), code));
      if (code == http::error::header_limit) co_return Read::kHeaderTooLarge;
      if (code && code != http::error::need_more) co_return Read::kMalformed;
      if (parser_->is_header_done()) co_return Read::kDone;
    }
    if (const Read outcome = co_await fill(kHeadRoomBytes); outcome != Read::kDone) co_return outcome;
  }
}

awaitable<HttpConnection::Read> HttpConnection::read_body() {
  parser_->eager(true);
  const auto length = parser_->content_length();
  const bool is_small = length && *length <= kHeadRoomBytes;
  while (!parser_->is_done()) {
    if (buffer_.size() > 0) {
      error_code code;
      buffer_.consume(parser_->put(buffer_.data(), code));
      if (code == http::error::body_limit) co_return Read::kBodyTooLarge;
      if (code && code != http::error::need_more) co_return Read::kMalformed;
      if (parser_->is_done()) break;
    }
    const Read outcome = co_await fill(is_small ? kHeadRoomBytes : kBodyRoomBytes);
    if (outcome != Read::kDone) co_return outcome;
  }
  co_return Read::kDone;
}

// Reads what a refused request still has to say, where that is little. True if nothing of it is left.
awaitable<bool> HttpConnection::skip_body() {
  if (parser_->is_done()) co_return true;
  const auto remaining = parser_->content_length_remaining();
  const bool waits_for_us = parser_->get().count(http::field::expect) > 0;
  if (!remaining || *remaining > kSkippedBytesMax || waits_for_us) co_return false;
  co_return co_await read_body() == Read::kDone;
}

// ---- answering

// The answer to a request whose head or body could not be read; nothing where nobody waits for one.
std::optional<Response> HttpConnection::refusal_of(Read outcome) {
  std::string_view label;
  std::optional<Response> response;
  switch (outcome) {
    case Read::kDone:
    case Read::kClosed:
      return std::nullopt;
    case Read::kTimedOut:
      response = detail_response(408, "the request did not arrive in time");
      label = "timeout";
      break;
    case Read::kMalformed:
      response = detail_response(400, "this is not valid HTTP/1.1");
      label = "malformed";
      break;
    case Read::kHeaderTooLarge:
      response =
          detail_response(431, "the request's head is larger than " + std::to_string(kHeaderBytesMax) + " bytes");
      label = "header_too_large";
      break;
    case Read::kBodyTooLarge:
      response = detail_response(413,
                                 "the request body is larger than the server's limit "
                                 "(limits.request_body_bytes_max); send it in smaller requests");
      label = "body_too_large";
      break;
  }
  HttpInstruments::count_rejected(label);
  if (outcome == Read::kMalformed) HttpInstruments::count_parse_error("http");
  if (outcome == Read::kHeaderTooLarge) HttpInstruments::count_parse_error("header");
  return response;
}

// What follows an unread request on its connection has no meaning any more.
awaitable<bool> HttpConnection::write_and_close(const Response& response, const telemetry::SpanContext& trace) {
  expired_ = false;
  // Not `if (co_await write(...)) co_await linger();`: g++ 12 makes a broken frame of that.
  const bool written = co_await write(response, false, trace);
  if (written) {
    co_await linger();
  }
  co_return false;
}

awaitable<bool> HttpConnection::answer(const RequestHead& head, Admission admission, RequestRecord& record) {
  const bool keep_alive = parser_->get().keep_alive();
  if (admission.refusal) {
    if (!admission.reject_reason.empty()) HttpInstruments::count_rejected(admission.reject_reason);
    const bool skipped = co_await skip_body();
    record.answered(nullptr, *admission.refusal, nullptr);
    bool again = skipped && keep_alive && !thread_.stopping;
    // One co_await a statement: g++ 12 makes broken frames of more.
    if (skipped) {
      const bool written = co_await write(*admission.refusal, again, record.trace());
      again = again && written;
    } else {
      co_await write_and_close(*admission.refusal, record.trace());
    }
    record.finish();
    co_return again;
  }
  if (!parser_->is_done()) {
    parser_->body_limit(static_cast<uint64_t>(admission.body_bytes_max));
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      error_code code;
      co_await asio::async_write(socket_, asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")), into(code));
    }
    const std::optional<Response> refusal = refusal_of(co_await read_body());
    if (refusal) {
      record.answered(nullptr, *refusal, nullptr);
      co_await write_and_close(*refusal, record.trace());
      record.finish();
      co_return false;
    }
    if (!parser_->is_done()) co_return false;
  }

  enter(Phase::kWorking, kForever);
  Exchange exchange{thread_.dispatcher.control(), thread_.dispatcher.limits()};
  exchange.headers = head.headers;
  exchange.path_parameters = std::move(admission.match.parameters);
  if (const size_t mark = head.target.find('?'); mark != std::string_view::npos) {
    exchange.query = head.target.substr(mark + 1);
  }
  exchange.body = std::move(parser_->get().body());
  exchange.user = std::move(admission.user);
  exchange.trace = record.trace();
  record.set_request_bytes(exchange.body.size());

  Result<Answer> answer = thread_.dispatcher.handle(exchange, admission.match.route->route);
  std::string().swap(exchange.body);
  Result<Response> response = co_await answer_of(exchange, std::move(answer));
  if (peer_gone_) co_return false;
  if (response.ok() && admission.match.route->route.promises) {
    const Status durable = co_await await_durable();
    if (!durable.ok()) response = durable.error();
  }
  if (!response.ok() && response.error().code == ErrorCode::kPayloadTooLarge) {
    HttpInstruments::count_rejected("body_too_large");
  }
  const Error* error = response.ok() ? nullptr : &response.error();
  const Response final_response = error != nullptr ? error_response(*error) : *response;
  record.answered(&exchange, final_response, error);
  const bool again = keep_alive && !final_response.close && !thread_.stopping;
  const bool written = co_await write(final_response, again, record.trace());
  record.finish();
  co_return written&& again;
}

// Waits for what the handler wants to wait for. Where the client went away meanwhile, peer_gone_ tells.
awaitable<Result<Response>> HttpConnection::answer_of(Exchange& exchange, Result<Answer> answer) {
  if (!answer.ok()) co_return std::move(answer).error();
  if (auto* response = std::get_if<Response>(&*answer)) co_return std::move(*response);
  if (std::holds_alternative<AwaitMetrics>(*answer)) {
    Result<Response> page = co_await collect_metrics(std::get<AwaitMetrics>(*answer).format);
    co_return page;
  }
  if (auto* later = std::get_if<AwaitResponse>(&*answer)) {
    Result<Response> response = co_await await_response(std::move(*later));
    co_return response;
  }
  const auto& wait = std::get<AwaitFuture>(*answer);
  auto snapshot = co_await await_future(exchange.user, wait.request);
  peer_gone_ = poll_ && std::exchange(poll_, nullptr)->peer_gone;
  if (!snapshot) co_return try_again_response(wait.request);
  co_return thread_.dispatcher.finish(exchange, wait, std::move(*snapshot));
}

// ---- answers that come later

// Where whoever answers and the connection meet. Confined to the connection's thread.
struct ResponseWait {
  explicit ResponseWait(asio::io_context& io) : timer(io) {}

  asio::steady_timer timer;
  std::optional<Result<Response>> response;
};

awaitable<Result<Response>> HttpConnection::await_response(AwaitResponse later) {
  const auto wait = std::make_shared<ResponseWait>(*thread_.io);
  later.start([io = thread_.io, wait](Result<Response> response) {
    asio::dispatch(*io, [wait, response = std::move(response)]() mutable {
      wait->response = std::move(response);
      wait->timer.cancel();
    });
  });
  wait->timer.expires_after(std::chrono::nanoseconds(kAnswerTimeout));
  error_code code;
  while (!wait->response && !code && !thread_.stopping) co_await wait->timer.async_wait(into(code));
  if (!wait->response) co_return unavailable("the answer took too long; try again", "timeout");
  co_return std::move(*wait->response);
}

// ---- promises

// Where the store and the connection meet. Confined to the connection's thread.
struct DurableWait {
  explicit DurableWait(asio::io_context& io) : timer(io) {}

  asio::steady_timer timer;
  std::optional<Status> status;
};

awaitable<Status> HttpConnection::await_durable() {
  const auto wait = std::make_shared<DurableWait>(*thread_.io);
  // The store bounds how long it takes, and so does the grace of a server that stops.
  thread_.dispatcher.control().when_durable([io = thread_.io, wait](const Status& status) {
    asio::dispatch(*io, [wait, status] {
      wait->status = status;
      wait->timer.cancel();
    });
  });
  error_code code;
  while (!wait->status && !expired_) {
    wait->timer.expires_after(kDurableCheck);
    co_await wait->timer.async_wait(into(code));
  }
  if (!wait->status) co_return unavailable("the server is shutting down", "shutting_down");
  co_return *wait->status;
}

// ---- the page of metrics

// Where the workers' metrics, the page and the clock meet. Confined to the connection's thread.
struct PageWait {
  explicit PageWait(asio::io_context& io) : timer(io) {}

  asio::steady_timer timer;
  std::optional<std::string> page;
};

awaitable<Result<Response>> HttpConnection::collect_metrics(telemetry::ExpositionFormat format) {
  const auto wait = std::make_shared<PageWait>(*thread_.io);
  const auto arrive = [io = thread_.io, wait](std::string page) {
    asio::dispatch(*io, [wait, page = std::move(page)]() mutable {
      wait->page = std::move(page);
      wait->timer.cancel();
    });
  };
  wait->timer.expires_after(std::chrono::nanoseconds(kMetricsTimeout));
  thread_.dispatcher.control().collect_worker_metrics(
      [arrive, format, page = thread_.metrics_page](std::vector<telemetry::WorkerMetrics> workers) {
        if (!page->render(format, std::move(workers), arrive)) arrive({});
      });
  error_code code;
  while (!wait->page && !code && !thread_.stopping) {
    co_await wait->timer.async_wait(into(code));
  }
  if (!wait->page || wait->page->empty()) co_return unavailable("the metrics could not be collected in time");
  Response response;
  response.content_type = telemetry::content_type(format);
  response.body = std::move(*wait->page);
  co_return response;
}

// ---- the long poll

// Nothing where the future was not finished in time; then poll_ tells whether anybody still listens.
awaitable<std::optional<Result<control::FutureSnapshot>>> HttpConnection::await_future(const control::UserId& user,
                                                                                       const control::RequestId& id) {
  control::ControlPlane& control = thread_.dispatcher.control();
  const auto poll = std::make_shared<Poll>(*thread_.io);
  poll_ = poll;
  const control::ControlPlane::WaitId wait = control.wait_future(user, id, Arrival{thread_.io, poll});
  if (!poll->outcome) {
    enter(Phase::kPolling, kForever);
    if (buffer_.size() == 0) buffer_.shrink_to_fit();
    // Polls that were opened together shall not all come back together.
    const Nanos limit = thread_.limits.long_poll;
    const Nanos jitter = limit / 20 > 0 ? static_cast<Nanos>(random_u64() % static_cast<uint64_t>(limit / 20)) : 0;
    poll->timer.expires_after(std::chrono::nanoseconds(limit - jitter));
    watch_for_disconnect(poll);
    error_code code;
    while (!poll->outcome && !poll->peer_gone && !thread_.stopping && !expired_) {
      co_await poll->timer.async_wait(into(code));
      if (!code) break;
    }
    error_code ignored;
    socket_.cancel(ignored);
    if (!poll->outcome) {
      control.end_wait(wait);
      if (expired_) poll->peer_gone = true;
      poll->outcome.reset();
    }
  }
  co_return std::move(poll->outcome);
}

// A client that has sent more, pipelined requests, is still there; from then on nobody looks.
void HttpConnection::watch_for_disconnect(const std::shared_ptr<Poll>& poll) {
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this(), poll](error_code code) {
    if (code || self->poll_ != poll) return;
    char byte = 0;
    const size_t size = self->socket_.receive(asio::buffer(&byte, 1), asio::ip::tcp::socket::message_peek, code);
    if (size > 0 || code == asio::error::would_block) return;
    poll->peer_gone = true;
    poll->timer.cancel();
  });
}

// ---- writing

awaitable<bool> HttpConnection::write(const Response& response, bool keep_alive, const telemetry::SpanContext& trace) {
  enter(Phase::kWriting, kWriteTimeout);
  out_.clear();
  append_head(out_, response, {thread_.date, keep_alive, trace});
  std::string_view body = response.bytes();
  if (parser_ && parser_->is_header_done() && parser_->get().method() == http::verb::head) body = {};
  if (body.size() <= kJoinedBytesMax) {
    out_.append(body);
    body = {};
  }
  // Most answers fit into the socket's buffer: then there is nothing to wait for.
  std::array<asio::const_buffer, 2> pieces{asio::buffer(out_), asio::buffer(body)};
  error_code code;
  size_t sent = socket_.write_some(pieces, code);
  if (code && code != asio::error::would_block) co_return false;
  if (sent == out_.size() + body.size()) co_return true;
  const size_t of_head = std::min(sent, out_.size());
  pieces = {pieces[0] + of_head, pieces[1] + (sent - of_head)};
  co_await asio::async_write(socket_, pieces, into(code));
  if (out_.capacity() > kBodyRoomBytes) std::string().swap(out_);
  co_return !code;
}

// Closing while the client still sends would reset the connection, and the client might never see the answer.
awaitable<void> HttpConnection::linger() {
  error_code code;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, code);
  if (code) co_return;
  enter(Phase::kLingering, kLingerTimeout);
  buffer_.consume(buffer_.size());
  while (!code && !expired_) {
    co_await socket_.async_read_some(buffer_.prepare(kBodyRoomBytes), into(code));
  }
}

}  // namespace tuft::api
