#include "api/http/http_connection.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>

#include "api/handlers/handlers.h"
#include "api/json/error_mapping.h"
#include "base/id.h"
#include "control/types/errors.h"
#include "telemetry/log.h"

// g++ 12 at -O1 reports asio's aligned_alloc for a coroutine frame and asio's own operator delete as a mismatch. It
// also miscompiles several co_await in one statement, so each statement has at most one.
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
using Phase = ClientSocket::Phase;
using Fill = ClientSocket::Fill;
using WaitEnd = ClientSocket::WaitEnd;

constexpr size_t kHeadRoomBytes = 4 << 10;
constexpr size_t kFieldBytes = 64;  // the memory of a header field beside its text
constexpr size_t kBodyRoomBytes = 64 << 10;
// A refused request's body is read to its end if it is no longer than this, so that the connection can be reused.
constexpr uint64_t kSkippedBytesMax = 64 << 10;
// Shorter bodies, of requests and answers, are not charged to an account: the number of connections bounds them.
constexpr size_t kUncountedBytesMax = 64 << 10;
// Shorter bodies are written together with their head.
constexpr size_t kJoinedBytesMax = 16 << 10;

}  // namespace

HttpConnection::HttpConnection(IoThread& thread, Transport::Socket socket, TlsContext* tls, Endpoints endpoints)
    : thread_(thread), socket_(thread, std::move(socket), tls), endpoints_(std::move(endpoints)) {
  thread_.connections.insert(this);
}

HttpConnection::~HttpConnection() {
  thread_.connections.erase(this);
  thread_.counts.leave(endpoints_.client_group);
}

awaitable<void> HttpConnection::serve(std::shared_ptr<HttpConnection> self) {
  try {
    bool again = co_await self->socket_.handshake(self->endpoints_.client_group);
    while (again) {
      again = co_await self->serve_one();
      // A client that sends many requests at once takes turns with the other connections of the thread.
      if (again && self->socket_.buffer().size() > 0) co_await asio::post(*self->thread_.io, asio::use_awaitable);
    }
    co_await self->socket_.close();
  } catch (const std::exception& exception) {
    telemetry::log_error("http.connection.failed", exception.what());
  }
}

// Returns true if the connection can serve another request.
awaitable<bool> HttpConnection::serve_one() {
  const Read outcome = co_await read_head();
  if (outcome == Read::kClosed) co_return false;
  if (outcome != Read::kDone) {
    parser_.reset();  // writing the refusal can take long
    head_memory_.shrink_to(0);
    const std::optional<Response> refusal = refusal_of(outcome, {}, thread_.limits);
    co_return co_await write_and_close(*refusal);
  }

  RequestHead head = parse_head(*parser_);
  head.client_is_local = endpoints_.client_is_local;
  Admission admission = thread_.dispatcher.admit(head);
  const auto held = static_cast<size_t>(head_memory_.bytes()) / 2;
  if (!hold_head(held, admission.user)) admission.refusal = refusal_of(Read::kNoRoomForHead, {}, thread_.limits);
  bool again = false;
  {
    // It reads the head, which lies in the parser, until its end.
    RequestTelemetry record(thread_.instruments, endpoints_, head, admission, request_start_);
    again = co_await answer(head, std::move(admission), record);
  }
  parser_.reset();
  head_memory_.shrink_to(0);
  body_memory_.shrink_to(0);
  co_return again;
}

// ---- reading

// Beast parses and keeps each field that is complete, and limits only what it has not parsed yet.
awaitable<Read> HttpConnection::read_head() {
  if (thread_.stopping) co_return Read::kClosed;
  const auto bytes_max = static_cast<size_t>(thread_.limits.header_bytes_max);
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(bytes_max));
  parser_->body_limit(boost::none);  // checked once the route is known
  socket_.enter(Phase::kIdle, thread_.limits.idle_timeout_seconds * kSecond);
  beast::flat_buffer& buffer = socket_.buffer();
  // A connection that waits does not keep the memory of a long request.
  if (buffer.capacity() > buffer.size() + 2 * kHeadRoomBytes) buffer.shrink_to_fit();
  size_t parsed_bytes = 0;
  size_t fields = 0;
  while (true) {
    if (buffer.size() > 0) {
      if (socket_.phase() == Phase::kIdle) {
        request_start_ = system_clock().monotonic();
        socket_.enter(Phase::kReading, thread_.limits.request_timeout_seconds * kSecond);
      }
      error_code code;
      const size_t parsed = parser_->put(buffer.data(), code);
      buffer.consume(parsed);
      if (code == http::error::header_limit) co_return Read::kHeaderTooLarge;
      if (code && code != http::error::need_more) co_return Read::kMalformed;
      parsed_bytes += parsed;
      fields = field_count(*parser_);
      const bool is_done = parser_->is_header_done();
      const size_t rest = is_done ? 0 : buffer.size();
      if (fields > kHeaderFieldsMax || parsed_bytes + rest > bytes_max) co_return Read::kHeaderTooLarge;
      if (is_done && has_unknown_framing(*parser_)) co_return Read::kMalformed;
      if (is_done) co_return hold_head(parsed_bytes + fields * kFieldBytes) ? Read::kDone : Read::kNoRoomForHead;
    }
    if (!hold_head(parsed_bytes + buffer.size() + fields * kFieldBytes)) co_return Read::kNoRoomForHead;
    const Fill outcome = co_await socket_.fill(kHeadRoomBytes);
    if (outcome != Fill::kDone) co_return outcome == Fill::kTimedOut ? Read::kTimedOut : Read::kClosed;
  }
}

// Charges a long head, whose buffer doubles when it grows: to the client's address, until its user is known, because
// others may share the address, such as all behind a proxy.
bool HttpConnection::hold_head(size_t bytes, const control::UserId& user) {
  if (bytes < kHeadRoomBytes) return true;
  const std::string who = user.empty() ? std::to_string(endpoints_.client_group) : "user " + user.str();
  head_memory_ = thread_.counts.heads->open(who);
  return head_memory_.grow_to(static_cast<int64_t>(2 * bytes), most_heads(thread_.limits)) ==
         ByteAccount::Answer::kTaken;
}

Read HttpConnection::take_room(size_t body_bytes, const Admission& admission) {
  if (body_bytes <= kUncountedBytesMax) return Read::kDone;
  if (body_memory_.bytes() == 0) body_memory_ = thread_.counts.bodies->open(admission.user.str());
  switch (body_memory_.grow_to(static_cast<int64_t>(body_bytes), most_bodies(thread_.limits))) {
    case ByteAccount::Answer::kTaken:
      return Read::kDone;
    case ByteAccount::Answer::kOverEach:
      return Read::kNoShare;
    case ByteAccount::Answer::kOverAll:
      break;
  }
  return Read::kNoRoom;
}

// A body without Content-Length is charged while it arrives. What is read behind a body, which nobody pays, is little.
awaitable<Read> HttpConnection::read_body(const Admission& admission) {
  parser_->eager(true);
  const auto length = parser_->content_length();
  beast::flat_buffer& buffer = socket_.buffer();
  while (!parser_->is_done()) {
    if (buffer.size() > 0) {
      error_code code;
      buffer.consume(parser_->put(buffer.data(), code));
      if (code == http::error::body_limit) co_return Read::kBodyTooLarge;
      if (code && code != http::error::need_more) co_return Read::kMalformed;
      const Read room = length ? Read::kDone : take_room(parser_->get().body().size(), admission);
      if (room != Read::kDone) co_return room;
      if (parser_->is_done()) break;
      if (buffer.size() > kChunkHeadBytesMax) co_return Read::kMalformed;
    }
    const uint64_t left = parser_->content_length_remaining().value_or(0);
    const Fill outcome = co_await socket_.fill(std::clamp<uint64_t>(left, kHeadRoomBytes, kBodyRoomBytes));
    if (outcome != Fill::kDone) co_return outcome == Fill::kTimedOut ? Read::kTimedOut : Read::kClosed;
  }
  // The fields of a trailer are kept with those of the head.
  co_return field_count(*parser_) > kHeaderFieldsMax ? Read::kHeaderTooLarge : Read::kDone;
}

// Reads and discards the short rest of a refused request: nothing limits the memory of strangers but the number of
// connections. Returns true if nothing of it is left.
awaitable<bool> HttpConnection::skip_body() {
  if (parser_->is_done()) co_return true;
  const auto remaining = parser_->content_length_remaining();
  const bool waits_for_us = parser_->get().count(http::field::expect) > 0;
  if (!remaining || *remaining > kSkippedBytesMax || waits_for_us) co_return false;
  beast::flat_buffer& buffer = socket_.buffer();
  for (size_t left = *remaining; left > 0;) {
    if (buffer.size() == 0) {
      const Fill outcome = co_await socket_.fill(kHeadRoomBytes);
      if (outcome != Fill::kDone) co_return false;
    }
    const size_t discarded = std::min(left, buffer.size());
    buffer.consume(discarded);
    left -= discarded;
  }
  co_return true;
}

// ---- answering

awaitable<bool> HttpConnection::refuse(const Admission& admission, RequestTelemetry& record) {
  const bool keep_alive = parser_->get().keep_alive();
  if (!admission.reject_reason.empty()) HttpTelemetry::count_rejected(admission.reject_reason);
  const bool skipped = co_await skip_body();
  record.answered(nullptr, *admission.refusal, nullptr);
  bool again = skipped && keep_alive && !thread_.stopping;
  if (skipped) {
    const bool written = co_await write(*admission.refusal, again, record.trace());
    again = again && written;
  } else {
    co_await write_and_close(*admission.refusal, record.trace());
  }
  record.finish();
  co_return again;
}

// Returns true if the body is complete. Otherwise the request has been answered, unless the client has disconnected.
awaitable<bool> HttpConnection::receive_body(const Admission& admission, RequestTelemetry& record) {
  if (parser_->is_done()) co_return true;
  parser_->body_limit(static_cast<uint64_t>(admission.body_limit.bytes));
  Read outcome = take_room(parser_->content_length().value_or(0), admission);
  if (outcome == Read::kDone && beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    const Phase phase = socket_.phase();
    co_await socket_.write("HTTP/1.1 100 Continue\r\n\r\n", {});
    if (socket_.phase() != phase) socket_.enter(phase, thread_.limits.request_timeout_seconds * kSecond);
  }
  if (outcome == Read::kDone) outcome = co_await read_body(admission);
  const std::optional<Response> refusal = refusal_of(outcome, admission, thread_.limits);
  if (refusal) {
    // Writing the refusal can take long.
    std::string().swap(parser_->get().body());
    body_memory_.shrink_to(0);
    record.answered(nullptr, *refusal, nullptr);
    parser_->get().clear();  // nothing reads the head any more
    co_await write_and_close(*refusal, record.trace());
    record.finish();
  }
  co_return outcome == Read::kDone;
}

awaitable<bool> HttpConnection::answer(const RequestHead& head, Admission admission, RequestTelemetry& record) {
  const uint64_t client = FairTurns::client_of(admission.user, endpoints_.client_group);
  if (admission.refusal) {
    if (!thread_.turns.take()) co_await thread_.turns.wait(client);
    const bool again = co_await refuse(admission, record);
    co_return again;
  }
  const bool received = co_await receive_body(admission, record);
  if (!received) co_return false;

  socket_.enter(Phase::kWorking, kForever);
  if (!thread_.turns.take()) co_await thread_.turns.wait(client);
  socket_.begin_answer();
  const bool keep_alive = parser_->get().keep_alive();
  const Route& route = admission.match.route->route;
  const std::shared_ptr<control::ControlPlane> control = thread_.dispatcher.control();
  Exchange exchange{.control = *control,
                    .limits = thread_.dispatcher.limits(),
                    .stands_by = thread_.dispatcher.stands_by(),
                    .metrics_page = thread_.metrics_page,
                    .openai = &thread_.dispatcher.openai(),
                    .work = &thread_.dispatcher.work()};
  exchange.console = thread_.dispatcher.console();
  exchange.headers = head.headers;
  exchange.path_parameters = std::move(admission.match.parameters);
  if (const size_t mark = head.target.find('?'); mark != std::string_view::npos) {
    exchange.query = head.target.substr(mark + 1);
  }
  exchange.body = std::move(parser_->get().body());
  exchange.user = std::move(admission.user);
  exchange.scheme = endpoints_.scheme;
  exchange.public_url = thread_.dispatcher.public_url();
  exchange.trace = record.trace();
  record.set_request_bytes(exchange.body.size());

  const bool is_work = Dispatcher::is_work(exchange, route);
  Result<Answer> answer = Answer();
  if (is_work) {
    answer = co_await handle_as_work(exchange, route);
  } else {
    answer = thread_.dispatcher.handle(exchange, route);
  }
  exchange.memory.clear();
  std::string().swap(exchange.body);
  body_memory_.shrink_to(0);
  LateResponse response = co_await answer_of(exchange, std::move(answer));
  if (!response) co_return false;
  if (response->ok() && route.durable) {
    const Status durable = co_await await_durable(exchange);
    if (!durable.ok()) response = durable.error();
  }
  response = thread_.dispatcher.as_told(route, std::move(*response));
  if (response->ok() && !headers_are_valid(**response)) {
    response = internal_error("an answer had a header with a control character", "response_header");
  }
  if (response->ok()) {
    const Status held = hold_answer(**response, exchange.user);
    if (!held.ok()) response = held.error();
  }
  const Error* error = response->ok() ? nullptr : &response->error();
  if (error != nullptr && error->reason == control::kWorkQueueFull) HttpTelemetry::count_rejected("work_overloaded");
  if (error != nullptr && error->code == ErrorCode::kPayloadTooLarge) HttpTelemetry::count_rejected("body_too_large");
  Response final_response = error != nullptr ? error_response(*error, route.errors) : std::move(**response);
  const bool again = keep_alive && !final_response.close && !thread_.stopping;
  record.answered(&exchange, final_response, error);
  bool written = false;
  if (final_response.stream) {
    written = co_await write_stream(std::move(final_response), again, record);
  } else {
    written = co_await write(final_response, again, record.trace());
  }
  answer_memory_.shrink_to(0);
  record.finish();
  co_return written&& again;
}

// The exchange belongs to a work thread until that is done, so nothing ends this wait: not even the end of the server,
// which makes the work brief.
awaitable<Result<Answer>> HttpConnection::handle_as_work(Exchange& exchange, const Route& route) {
  const auto wait = std::make_shared<WaitFor<Result<Answer>>>(*thread_.io);
  thread_.dispatcher.handle_as_work(exchange, route, Arrival<Result<Answer>>{thread_.io, wait});
  ClientSocket::WaitLimits limits;
  limits.watches_peer = false;
  limits.until_arrival = true;
  co_await socket_.wait(wait, limits);
  co_return std::move(*wait->value);
}

awaitable<HttpConnection::LateResponse> HttpConnection::answer_of(Exchange& exchange, Result<Answer> answer) {
  if (!answer.ok()) co_return std::move(answer).error();
  if (auto* response = std::get_if<Response>(&*answer)) co_return std::move(*response);
  LateResponse late;
  if (auto* later = std::get_if<AwaitResponse>(&*answer)) {
    late = co_await await_response(std::move(*later));
  } else {
    late = co_await await_future(exchange, std::get<AwaitFuture>(*answer));
  }
  co_return late;
}

awaitable<HttpConnection::LateResponse> HttpConnection::await_response(AwaitResponse later) {
  using Wait = WaitFor<Result<Response>>;
  const auto wait = std::make_shared<Wait>(*thread_.io);
  later.start(Arrival<Result<Response>>{thread_.io, wait});
  ClientSocket::WaitLimits limits;
  limits.time = later.at_end ? std::min(poll_time(), later.limit) : later.limit;
  limits.ends_at_stop = static_cast<bool>(later.at_end);
  const WaitEnd end = co_await socket_.wait(wait, limits);
  if (end != WaitEnd::kArrived && later.at_end) {
    Response response = later.at_end();
    response.close = end == WaitEnd::kPeerGone;
    co_return response;
  }
  if (end == WaitEnd::kTimedOut) co_return unavailable("the answer took too long; try again", "timeout");
  if (end != WaitEnd::kArrived) co_return std::nullopt;
  co_return std::move(*wait->value);
}

// The jitter spreads out polls that began at the same time.
Nanos HttpConnection::poll_time() const {
  const Nanos most = thread_.long_poll;
  const Nanos jitter = most / 20 > 0 ? static_cast<Nanos>(random_u64() % static_cast<uint64_t>(most / 20)) : 0;
  return most - jitter;
}

// The long poll: the answer is 408 if the future does not finish in time or the server stops.
awaitable<HttpConnection::LateResponse> HttpConnection::await_future(Exchange& exchange, const AwaitFuture& future) {
  using Snapshot = Result<control::FutureSnapshot>;
  control::ControlPlane& control = exchange.control;
  const auto wait = std::make_shared<WaitFor<Snapshot>>(*thread_.io);
  const auto number = control.wait_future(exchange.user, future.request, Arrival<Snapshot>{thread_.io, wait});
  ClientSocket::WaitLimits limits;
  limits.time = poll_time();
  limits.ends_at_stop = true;
  const WaitEnd end = co_await socket_.wait(wait, limits);
  if (end == WaitEnd::kArrived) co_return thread_.dispatcher.finish(exchange, future, std::move(*wait->value));
  control.end_wait(number);
  Response response = try_again_response(future.request);
  // A client that has only ended its sending still reads this; for one that is gone it is lost.
  response.close = end == WaitEnd::kPeerGone;
  co_return response;
}

// Needs no timeout of its own: the store's timeout and the grace period of a stopping server limit the wait.
awaitable<Status> HttpConnection::await_durable(Exchange& exchange) {
  const auto wait = std::make_shared<WaitFor<Status>>(*thread_.io);
  exchange.control.when_durable(Arrival<Status>{thread_.io, wait});
  ClientSocket::WaitLimits limits;
  limits.watches_peer = false;
  const WaitEnd end = co_await socket_.wait(wait, limits);
  if (end != WaitEnd::kArrived) co_return control::shutting_down();
  co_return std::move(*wait->value);
}

// ---- writing

bool HttpConnection::is_head() const {
  return parser_ && parser_->is_header_done() && parser_->get().method() == http::verb::head;
}

Status HttpConnection::hold_answer(const Response& response, const control::UserId& user) {
  const int64_t bytes =
      response.stream ? response.stream->buffer_bytes() : static_cast<int64_t>(response.bytes().size());
  if (bytes <= static_cast<int64_t>(kUncountedBytesMax)) return {};
  answer_memory_ = thread_.counts.answers->open(user.str());
  const ByteAccount::Answer taken = answer_memory_.grow_to(bytes, most_answers(thread_.limits));
  if (taken == ByteAccount::Answer::kTaken) return {};
  const bool of_user = taken == ByteAccount::Answer::kOverEach;
  HttpTelemetry::count_rejected(of_user ? "user_sending_overloaded" : "sending_overloaded");
  return no_room_for_answer(of_user, thread_.limits);
}

awaitable<bool> HttpConnection::write(const Response& response, bool keep_alive, const telemetry::SpanContext& trace) {
  std::string_view body = response.bytes();
  ResponseHead head{thread_.date, keep_alive, trace};
  head.length = static_cast<int64_t>(body.size());
  out_.clear();
  append_head(out_, response, head);
  if (is_head()) body = {};
  if (body.size() <= kJoinedBytesMax) {
    out_.append(body);
    body = {};
  }
  const bool written = co_await socket_.write(out_, body);
  if (out_.capacity() > kBodyRoomBytes) std::string().swap(out_);
  co_return written;
}

// The connection cannot be reused after a request that was not read completely, so nothing of it is kept.
awaitable<bool> HttpConnection::write_and_close(const Response& response, const telemetry::SpanContext& trace) {
  socket_.forget_timeout();
  socket_.drop_received();
  const bool written = co_await write(response, false, trace);
  if (written) co_await socket_.linger();
  co_return false;
}

// Takes `response` by value, so that its stream is destroyed with this coroutine.
awaitable<bool> HttpConnection::write_stream(Response response, bool keep_alive, RequestTelemetry& record) {
  const std::optional<int64_t> length = response.stream->length();
  const bool is_old = parser_->get().version() < 11;
  ResponseHead head{thread_.date, keep_alive, record.trace()};
  head.framing = length ? Framing::kLength : is_old ? Framing::kUntilClose : Framing::kChunked;
  head.length = length.value_or(0);
  if (head.framing == Framing::kUntilClose) head.keep_alive = false;
  out_.clear();
  append_head(out_, response, head);
  bool written = co_await socket_.write(out_, {});
  if (written && !is_head()) written = co_await write_pieces(*response.stream, head, record);
  if (!written) record.cut("client_gone");
  co_return written&& head.keep_alive;
}

// Requests each piece after the previous one has been written. Returns true if the body was sent completely.
awaitable<bool> HttpConnection::write_pieces(BodyStream& stream, const ResponseHead& head, RequestTelemetry& record) {
  int64_t sent = 0;
  while (true) {
    const auto wait = std::make_shared<WaitFor<Result<std::string>>>(*thread_.io);
    stream.next(Arrival<Result<std::string>>{thread_.io, wait});
    const WaitEnd end = co_await socket_.wait(wait, ClientSocket::WaitLimits{});
    if (end != WaitEnd::kArrived) co_return false;
    Result<std::string>& piece = *wait->value;
    const bool is_last = piece.ok() && piece->empty();
    sent += piece.ok() ? static_cast<int64_t>(piece->size()) : 0;
    const bool is_wrong = head.framing == Framing::kLength && (is_last ? sent != head.length : sent > head.length);
    if (!piece.ok() || is_wrong) {
      record.cut("stream_failed");
      telemetry::log_error("http.stream.failed",
                           piece.ok() ? "the length of a body differs from its Content-Length" : piece.error().message);
      co_return false;
    }
    record.set_response_bytes(static_cast<size_t>(sent));
    const bool is_chunked = head.framing == Framing::kChunked;
    if (is_last) {
      if (!is_chunked) co_return true;
      co_return co_await socket_.write("0\r\n\r\n", {});
    }
    out_.clear();
    if (is_chunked) {
      out_ = chunk_head(piece->size());
      piece->append("\r\n");
    }
    const bool written = co_await socket_.write(out_, *piece);
    if (!written) co_return false;
  }
}

}  // namespace tuft::api
