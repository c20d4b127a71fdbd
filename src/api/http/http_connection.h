// Serves the requests of one connection.
//
// The room http/ promises: a request is read completely or refused within the configured limits of size, time and
// memory; requests of a connection are answered one at a time, in order (pipelined ones wait, most of them in the
// kernel); no slow or silent client blocks a thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "api/exchange.h"
#include "api/http/client_socket.h"
#include "api/http/io_thread.h"
#include "api/http/refusals.h"
#include "api/http/request_head.h"
#include "api/http/response_head.h"

namespace tuft::api {

// It has more than 25 methods: a short one for each step from a request's head to the end of its answer.
//
// Confined to its IoThread. Lives until its coroutine ends.
class HttpConnection {
 public:
  // `tls` may be null.
  HttpConnection(IoThread& thread, Transport::Socket socket, TlsContext* tls, Endpoints endpoints);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Runs until the connection is closed.
  static boost::asio::awaitable<void> serve(std::shared_ptr<HttpConnection> self);

  // Cancels the current phase if its deadline has passed. Called by the thread's tick.
  void enforce_deadline(Nanos now) { socket_.enforce_deadline(now); }
  // Called when the server stops: closes an idle connection, ends an open poll, and lets other requests finish.
  void wind_down() { socket_.wind_down(); }
  // Called at the end of the server's grace period: ends the connection.
  void abort() { socket_.abort(); }

 private:
  // Empty if the client no longer waits for the answer.
  using LateResponse = std::optional<Result<Response>>;

  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<Read> read_head();
  bool hold_head(size_t bytes, const control::UserId& user = {});
  boost::asio::awaitable<Read> read_body(const Admission& admission);
  boost::asio::awaitable<bool> skip_body();
  Read take_room(size_t body_bytes, const Admission& admission);
  boost::asio::awaitable<bool> refuse(const Admission& admission, RequestTelemetry& record);
  boost::asio::awaitable<bool> receive_body(const Admission& admission, RequestTelemetry& record);
  boost::asio::awaitable<bool> answer(const RequestHead& head, Admission admission, RequestTelemetry& record);
  boost::asio::awaitable<Result<Answer>> handle_as_work(Exchange& exchange, const Route& route);
  boost::asio::awaitable<LateResponse> answer_of(Exchange& exchange, Result<Answer> answer);
  boost::asio::awaitable<LateResponse> await_future(Exchange& exchange, const AwaitFuture& wait);
  boost::asio::awaitable<LateResponse> await_response(AwaitResponse later);
  Nanos poll_time() const;
  boost::asio::awaitable<Status> await_durable(Exchange& exchange);
  bool is_head() const;
  Status hold_answer(const Response& response, const control::UserId& user);
  boost::asio::awaitable<bool> write(const Response& response, bool keep_alive,
                                     const telemetry::SpanContext& trace = {});
  boost::asio::awaitable<bool> write_and_close(const Response& response, const telemetry::SpanContext& trace = {});
  boost::asio::awaitable<bool> write_stream(Response response, bool keep_alive, RequestTelemetry& record);
  boost::asio::awaitable<bool> write_pieces(BodyStream& stream, const ResponseHead& head, RequestTelemetry& record);

  IoThread& thread_;
  ClientSocket socket_;
  const Endpoints endpoints_;
  std::optional<RequestParser> parser_;
  ByteAccount::Hold head_memory_;  // a long head, until its request is answered
  ByteAccount::Hold body_memory_;  // the memory of the body, while the parser or the handler owns it
  ByteAccount::Hold answer_memory_;
  std::string out_;
  Nanos request_start_ = 0;
};

}  // namespace tuft::api
