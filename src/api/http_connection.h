// One client connection: reads requests one after the other (pipelined ones wait in the buffer), answers each before
// the next is looked at. Confined to its IoThread. It lives until its coroutine ends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "api/client_socket.h"
#include "api/exchange.h"
#include "api/io_thread.h"
#include "api/request_head.h"
#include "api/response_head.h"

namespace tuft::api {

class HttpConnection {
 public:
  // `tls` may be null.
  HttpConnection(IoThread& thread, Transport::Socket socket, TlsContext* tls, Endpoints endpoints);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Runs to the connection's end.
  static boost::asio::awaitable<void> serve(std::shared_ptr<HttpConnection> self);

  // Ends what has taken too long. Called by the thread's tick.
  void enforce_deadline(Nanos now) { socket_.enforce_deadline(now); }
  // The server stops: an idle connection closes, an open poll is answered, anything else finishes.
  void wind_down() { socket_.wind_down(); }
  // The grace is over.
  void abort() { socket_.abort(); }

 private:
  // How reading ended.
  enum class Read : uint8_t {
    kDone,
    kClosed,
    kTimedOut,
    kMalformed,
    kHeaderTooLarge,
    kBodyTooLarge,
    kNoRoom,
    kNoShare
  };
  // Nothing where nobody waits for the answer any more.
  using LateResponse = std::optional<Result<Response>>;

  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<Read> read_head();
  boost::asio::awaitable<Read> read_body(const Admission& admission);
  boost::asio::awaitable<bool> skip_body(const Admission& admission);
  Read take_room(size_t body_bytes, const Admission& admission);
  std::optional<Response> refusal_of(Read outcome, const Admission& admission = {}) const;
  boost::asio::awaitable<bool> refuse(const Admission& admission, RequestRecord& record);
  boost::asio::awaitable<bool> receive_body(const Admission& admission, RequestRecord& record);
  boost::asio::awaitable<bool> answer(const RequestHead& head, Admission admission, RequestRecord& record);
  boost::asio::awaitable<LateResponse> answer_of(Exchange& exchange, Result<Answer> answer);
  boost::asio::awaitable<LateResponse> await_future(Exchange& exchange, const AwaitFuture& wait);
  boost::asio::awaitable<LateResponse> await_response(AwaitResponse later);
  boost::asio::awaitable<Status> await_durable();
  boost::asio::awaitable<bool> write(const Response& response, bool keep_alive,
                                     const telemetry::SpanContext& trace = {});
  boost::asio::awaitable<bool> write_and_close(const Response& response, const telemetry::SpanContext& trace = {});
  boost::asio::awaitable<bool> write_stream(Response response, bool keep_alive, RequestRecord& record);
  boost::asio::awaitable<bool> write_pieces(BodyStream& stream, const ResponseHead& head, RequestRecord& record);

  IoThread& thread_;
  ClientSocket socket_;
  const Endpoints endpoints_;
  std::optional<RequestParser> parser_;
  ByteAccount::Hold body_memory_;  // of what the parser, then the handler has
  std::string out_;
  Nanos request_start_ = 0;
};

}  // namespace tuft::api
