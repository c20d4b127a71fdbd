// One client connection: reads requests one after the other (pipelined ones wait in the buffer), answers each before
// the next is looked at. Confined to its IoThread. It lives until its coroutine ends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "api/exchange.h"
#include "api/io_thread.h"
#include "api/request_head.h"

namespace tuft::api {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(IoThread& thread, boost::asio::ip::tcp::socket socket, Endpoints endpoints);
  ~HttpConnection();

  // Runs to the connection's end.
  static boost::asio::awaitable<void> serve(std::shared_ptr<HttpConnection> self);

  // Ends what has taken too long. Called by the thread's tick.
  void enforce_deadline(Nanos now);
  // The server stops: an idle connection closes, an open poll is answered, anything else finishes.
  void wind_down();
  // The grace is over.
  void abort();

 private:
  enum class Phase : uint8_t { kIdle, kReading, kWorking, kPolling, kWriting, kLingering };
  // How reading ended.
  enum class Read : uint8_t { kDone, kClosed, kTimedOut, kMalformed, kHeaderTooLarge, kBodyTooLarge };
  struct Poll;
  struct Arrival;

  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<Read> read_head();
  boost::asio::awaitable<Read> read_body();
  boost::asio::awaitable<Read> fill(size_t room_bytes);
  boost::asio::awaitable<bool> skip_body();
  boost::asio::awaitable<bool> answer(const RequestHead& head, Admission admission, RequestRecord& record);
  boost::asio::awaitable<std::optional<Result<control::FutureSnapshot>>> await_future(const control::UserId& user,
                                                                                      const control::RequestId& id);
  boost::asio::awaitable<Result<Response>> answer_of(Exchange& exchange, Result<Answer> answer);
  boost::asio::awaitable<Result<Response>> await_response(AwaitResponse later);
  boost::asio::awaitable<Result<Response>> collect_metrics(telemetry::ExpositionFormat format);
  boost::asio::awaitable<Status> await_durable();
  boost::asio::awaitable<bool> write(const Response& response, bool keep_alive,
                                     const telemetry::SpanContext& trace = {});
  boost::asio::awaitable<bool> write_and_close(const Response& response, const telemetry::SpanContext& trace = {});
  boost::asio::awaitable<void> linger();

  static std::optional<Response> refusal_of(Read outcome);
  void watch_for_disconnect(const std::shared_ptr<Poll>& poll);
  void enter(Phase phase, Nanos limit);

  IoThread& thread_;
  boost::asio::ip::tcp::socket socket_;
  const Endpoints endpoints_;
  boost::beast::flat_buffer buffer_;
  std::optional<RequestParser> parser_;
  std::string out_;
  std::shared_ptr<Poll> poll_;
  Phase phase_ = Phase::kIdle;
  Nanos deadline_ = 0;
  Nanos request_start_ = 0;
  bool expired_ = false;
  bool peer_gone_ = false;  // nobody waits for the answer any more
};

}  // namespace tuft::api
