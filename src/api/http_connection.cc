#include "api/http_connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>

#include "api/error_mapping.h"
#include "api/handlers.h"
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
constexpr Nanos kLingerTimeout = 2 * kSecond;
constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

auto into(error_code& code) {
  return asio::redirect_error(asio::use_awaitable, code);
}

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 410:
      return "Gone";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

void append_number(std::string& text, size_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  text.append(digits, end);
}

void append_head(std::string& out, const Response& response, std::string_view date, bool keep_alive) {
  out.append("HTTP/1.1 ");
  append_number(out, static_cast<size_t>(response.status));
  out.append(" ").append(reason_phrase(response.status)).append("\r\nContent-Type: ");
  out.append(response.content_type == ContentType::kJson ? "application/json" : "application/x-protobuf");
  out.append("\r\nContent-Length: ");
  append_number(out, response.bytes().size());
  out.append("\r\nDate: ").append(date);
  if (!response.allow.empty()) out.append("\r\nAllow: ").append(response.allow);
  if (response.status == 503) out.append("\r\nRetry-After: 1");
  if (!keep_alive) out.append("\r\nConnection: close");
  out.append("\r\n\r\n");
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
}

HttpConnection::~HttpConnection() {
  thread_.connections.erase(this);
  thread_.connections_open.fetch_sub(1, std::memory_order_relaxed);
}

void HttpConnection::enter(Phase phase, Nanos limit) {
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

  const RequestHead head = parse_head();
  Admission admission = thread_.dispatcher.admit(head);
  RequestRecord record(thread_.instruments, endpoints_, head, admission.match.route, request_start_);
  const bool again = co_await answer(head, std::move(admission), record);
  parser_.reset();
  co_return again;
}

RequestHead HttpConnection::parse_head() const {
  const auto& message = parser_->get();
  RequestHead head;
  const http::verb verb = message.method();
  head.method = verb == http::verb::get ? Method::kGet : verb == http::verb::post ? Method::kPost : Method::kOther;
  head.target = view(message.target());
  if (const auto length = parser_->content_length()) head.content_length = *length;
  for (const auto& field : message) {
    const std::string_view value = view(field.value());
    switch (field.name()) {
      case http::field::accept:
        head.headers.accept = value;
        break;
      case http::field::content_encoding:
        head.headers.content_encoding = value;
        break;
      case http::field::content_type:
        head.headers.content_type = value;
        break;
      case http::field::user_agent:
        head.headers.user_agent = value;
        break;
      case http::field::unknown: {
        const beast::string_view name = field.name_string();
        if (beast::iequals(name, "x-api-key")) head.headers.api_key = value;
        if (beast::iequals(name, "x-idempotency-key")) head.headers.idempotency_key = value;
        if (beast::iequals(name, "x-tinker-request-iteration")) head.headers.poll_iteration = value;
        if (beast::iequals(name, "traceparent")) head.headers.traceparent = value;
        break;
      }
      default:
        break;
    }
  }
  return head;
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
  return response;
}

// What follows an unread request on its connection has no meaning any more.
awaitable<bool> HttpConnection::write_and_close(const Response& response) {
  expired_ = false;
  // Not `if (co_await write(...)) co_await linger();`: g++ 12 makes a broken frame of that.
  const bool written = co_await write(response, false);
  if (written) {
    co_await linger();
  }
  co_return false;
}

awaitable<bool> HttpConnection::answer(const RequestHead& head, Admission admission, RequestRecord& record) {
  const bool keep_alive = parser_->get().keep_alive();
  if (admission.refusal) {
    if (!admission.reject_reason.empty()) HttpInstruments::count_rejected(admission.reject_reason);
    const int status = admission.refusal->status;
    const bool skipped = co_await skip_body();
    record.finish(nullptr, status, nullptr);
    if (!skipped) co_return co_await write_and_close(*admission.refusal);
    const bool again = keep_alive && !thread_.stopping;
    co_return co_await write(*admission.refusal, again) && again;
  }
  if (!parser_->is_done()) {
    parser_->body_limit(static_cast<uint64_t>(admission.body_bytes_max));
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      error_code code;
      co_await asio::async_write(socket_, asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")), into(code));
    }
    const std::optional<Response> refusal = refusal_of(co_await read_body());
    if (refusal) {
      record.finish(nullptr, refusal->status, nullptr);
      co_return co_await write_and_close(*refusal);
    }
    if (!parser_->is_done()) co_return false;
  }

  enter(Phase::kWorking, kForever);
  Exchange exchange{thread_.dispatcher.control(), thread_.dispatcher.limits()};
  exchange.headers = head.headers;
  exchange.path_parameter = std::move(admission.match.parameter);
  exchange.body = std::move(parser_->get().body());
  exchange.user = std::move(admission.user);
  exchange.trace = record.trace();

  Result<Response> response = internal_error("no answer was made");
  Result<Answer> answer = thread_.dispatcher.handle(exchange, admission.match.route->route);
  std::string().swap(exchange.body);
  if (!answer.ok()) {
    response = std::move(answer).error();
  } else if (auto* wait = std::get_if<AwaitFuture>(&*answer)) {
    auto snapshot = co_await await_future(exchange.user, wait->request);
    if (poll_ && std::exchange(poll_, nullptr)->peer_gone) co_return false;
    response = snapshot ? thread_.dispatcher.finish(exchange, *wait, std::move(*snapshot))
                        : Result<Response>(try_again_response(wait->request));
  } else {
    response = std::get<Response>(std::move(*answer));
  }
  if (!response.ok() && response.error().code == ErrorCode::kPayloadTooLarge) {
    HttpInstruments::count_rejected("body_too_large");
  }
  const Error* error = response.ok() ? nullptr : &response.error();
  const Response final_response = error != nullptr ? error_response(*error) : std::move(response).value();
  record.finish(&exchange, final_response.status, error);
  const bool again = keep_alive && !final_response.close && !thread_.stopping;
  co_return co_await write(final_response, again) && again;
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

awaitable<bool> HttpConnection::write(const Response& response, bool keep_alive) {
  enter(Phase::kWriting, kWriteTimeout);
  out_.clear();
  append_head(out_, response, thread_.date, keep_alive);
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
