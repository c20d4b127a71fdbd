// Tests of streamed bodies and of delayed answers.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

using Done = std::function<void(Result<std::string>)>;

// Controls a stream: the pieces that it produces, and the calls that it got. One stream at a time.
class Script {
 public:
  // Provides the next piece; passes it on at once if a reader waits for it.
  void give(Result<std::string> piece) {
    Done done;
    {
      const std::lock_guard lock(mutex_);
      if (!waiting_) return pieces_.push_back(std::move(piece));
      done = std::exchange(waiting_, nullptr);
    }
    done(std::move(piece));
  }
  void ask(Done done) {
    {
      const std::lock_guard lock(mutex_);
      ++asked_;
      changed_.notify_all();
      if (pieces_.empty()) {
        waiting_ = std::move(done);
        return;
      }
    }
    Result<std::string> piece = std::move(pieces_.front());
    pieces_.pop_front();
    done(std::move(piece));
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    waiting_ = nullptr;
    changed_.notify_all();
  }
  void await_asked(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ >= count; });
  }
  void await_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  std::optional<int64_t> length;
  std::vector<std::pair<std::string_view, std::string>> headers;
  Nanos limit = 50 * kSecond;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Result<std::string>> pieces_;
  Done waiting_;
  int asked_ = 0;
  bool ended_ = false;
};

Script* script = nullptr;

class ScriptedStream final : public BodyStream {
 public:
  ~ScriptedStream() override { script->end(); }
  std::optional<int64_t> length() const override { return script->length; }
  void next(Done done) override { script->ask(std::move(done)); }
};

Result<Answer> handle_stream(Exchange&) {
  Response response;
  response.content_type = "text/event-stream";
  response.headers = script->headers;
  response.stream = std::make_shared<ScriptedStream>();
  return Answer(std::move(response));
}

// Ends the script when the last reference is released.
struct Holder {
  ~Holder() { script->end(); }
};

Result<Answer> handle_later(Exchange&) {
  AwaitResponse later;
  later.limit = script->limit;
  later.start = [holder = std::make_shared<Holder>()](const std::function<void(Result<Response>)>& done) {
    script->ask([done](Result<std::string> text) {
      if (!text.ok()) return done(text.error());
      done(json_response(*text));
    });
  };
  return Answer(std::move(later));
}

constexpr Route kStreamRoutes[] = {
    {.method = Method::kGet, .pattern = "/stream", .handler = handle_stream},
    {.method = Method::kGet, .pattern = "/later", .handler = handle_later},
};

class Streams : public ServerTest {
 protected:
  Streams() {
    script = &script_;
    options.routes = kStreamRoutes;
    options.io_threads = 1;
  }
  // The server is stopped first, because it may still use the script.
  ~Streams() override { stop(); }

  std::string get(const std::string& target) { return request_text("GET", target, ""); }

  Script script_;
};

TEST_F(Streams, PiecesOfUnknownLengthAreSentChunked) {
  start();
  TestClient client(server->port());
  client.send(get("/stream") + get("/nowhere"));
  EXPECT_EQ(client.read_until("\r\n\r\n").find("Content-Length"), std::string::npos);
  script_.give(std::string("data: 1\n\n"));
  EXPECT_EQ(client.read_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  script_.give(std::string(20'000, 'x'));
  EXPECT_EQ(client.read_until("x\r\n"), "4e20\r\n" + std::string(20'000, 'x') + "\r\n");
  script_.give(std::string());
  EXPECT_EQ(client.read_until("\r\n\r\n"), "0\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 404) << "the connection goes on";
  script_.await_end();
}

TEST_F(Streams, BodiesOfKnownLengthHaveContentLength) {
  script_.length = 6;
  script_.headers = {{"X-File", "a.tar"}};
  for (const char* piece : {"abc", "def", ""}) script_.give(std::string(piece));
  start();
  TestClient client(server->port());
  client.send(get("/stream") + get("/nowhere"));
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.body, "abcdef");
  EXPECT_EQ(reply.headers.at("x-file"), "a.tar");
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream");
  EXPECT_FALSE(reply.has("transfer-encoding"));
  EXPECT_EQ(client.read_reply().status, 404);
}

TEST_F(Streams, Http10ClientReadsUntilTheConnectionCloses) {
  for (const char* piece : {"abc", "def", ""}) script_.give(std::string(piece));
  start();
  TestClient client(server->port());
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\nX-API-Key: tml-alice\r\n\r\n");
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_EQ(head.find("chunked"), std::string::npos);
  EXPECT_NE(head.find("Connection: close"), std::string::npos);
  EXPECT_EQ(client.read_until("abcdef"), "abcdef");
  EXPECT_TRUE(client.at_end());
}

TEST_F(Streams, NextPieceIsRequestedWhenThePreviousIsSent) {
  start();
  TestClient client(server->port());
  client.send(get("/stream"));
  // More than the sockets hold: while the client does not read, no further piece is requested.
  script_.give(std::string(16 << 20, 'x'));
  script_.await_asked(1);
  EXPECT_EQ(call("GET", "/nowhere").status, 404);
  EXPECT_EQ(script_.asked(), 1);
  client.read_until("\r\n\r\n");
  client.read_until("x\r\n");
  script_.await_asked(2);
}

TEST_F(Streams, DisconnectEndsAWaitingStream) {
  start();
  {
    TestClient client(server->port());
    client.send(get("/stream"));
    script_.give(std::string("data: 1\n\n"));
    script_.await_asked(2);
  }
  script_.await_end();
}

TEST_F(Streams, DisconnectEndsAStreamThatIsBeingWritten) {
  start();
  {
    TestClient client(server->port());
    client.send(get("/stream"));
    script_.give(std::string(16 << 20, 'x'));
    client.read_until("xxx");
  }
  script_.await_end();
}

TEST_F(Streams, DisconnectBehindPipelinedRequestsIsNoticed) {
  start();
  {
    TestClient client(server->port());
    client.send(get("/stream"));
    script_.await_asked(1);
    client.send(get("/nowhere"));
  }
  script_.await_end();
}

TEST_F(Streams, ErrorClosesTheConnection) {
  start();
  TestClient client(server->port());
  client.send(get("/stream"));
  script_.give(std::string("abc"));
  script_.give(internal_error("the disk is gone"));
  client.read_until("abc\r\n");
  EXPECT_TRUE(client.at_end());
  script_.await_end();
}

TEST_F(Streams, BodyOfWrongLengthClosesTheConnection) {
  script_.length = 6;
  for (const char* piece : {"abc", ""}) script_.give(std::string(piece));
  start();
  TestClient client(server->port());
  client.send(get("/stream"));
  client.read_until("abc");
  EXPECT_TRUE(client.at_end());
}

TEST_F(Streams, HeaderWithALineBreakIsAnInternalError) {
  script_.headers = {{"Location", "/a\r\nSet-Cookie: x"}};
  start();
  EXPECT_EQ(call("GET", "/stream").status, 500);
  script_.await_end();
}

TEST_F(Streams, StopEndsAStreamAfterTheGrace) {
  start();
  TestClient client(server->port());
  client.send(get("/stream"));
  script_.await_asked(1);
  stop(20 * kMillisecond);
  script_.await_end();
  client.read_until("\r\n\r\n");
  EXPECT_TRUE(client.at_end());
}

// ---- delayed answers

TEST_F(Streams, AnswerCanBeDelayed) {
  start();
  TestClient client(server->port());
  client.send(get("/later") + get("/nowhere"));
  script_.await_asked(1);
  script_.give(std::string("{}"));
  EXPECT_EQ(client.read_reply().body, "{}");
  EXPECT_EQ(client.read_reply().status, 404);
  script_.await_end();
}

TEST_F(Streams, DelayedAnswerTimesOut) {
  script_.limit = 20 * kMillisecond;
  start();
  expect_refusal(call("GET", "/later"), 503, "too long");
  script_.await_end();
}

TEST_F(Streams, DisconnectEndsTheWaitForAnAnswer) {
  start();
  {
    TestClient client(server->port());
    client.send(get("/later"));
    script_.await_asked(1);
  }
  script_.await_end();
}

TEST_F(Streams, StopWaitsForAnAnswerUntilTheGraceEnds) {
  start();
  TestClient client(server->port());
  client.send(get("/later"));
  script_.await_asked(1);
  stop(20 * kMillisecond);
  script_.await_end();
  EXPECT_TRUE(client.at_end());
}

}  // namespace
}  // namespace tuft::api
