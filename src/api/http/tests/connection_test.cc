// Tests of connections: keep-alive, limits, long polls, invalid input, shutdown.
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "api/tests/bodies.h"
#include "api/tests/test_client.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::api {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

const char* const kOptim = R"({"model_id":"m","adam_params":{}})";

class Connections : public ServerTest {
 protected:
  std::string poll_text(const std::string& id, Headers headers = {}) {
    return request_text("POST", "/api/v1/retrieve_future", R"({"request_id":")" + id + R"("})", std::move(headers));
  }
  std::string health() { return request_text("GET", "/api/v1/healthz", ""); }
  void new_future() { ASSERT_EQ(post("optim_step", kOptim).status, 200); }
};

TEST_F(Connections, KeepAliveServesManyRequestsOnOneConnection) {
  start();
  TestClient client(server->port());
  for (int i = 0; i < 50; ++i) {
    client.send(request_text("POST", "/api/v1/optim_step", kOptim));
    EXPECT_EQ(client.read_reply().status, 200);
  }
  client.send(request_text("GET", "/api/v1/healthz", "", {{"Connection", "close"}}));
  EXPECT_EQ(client.read_reply().headers.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

TEST_F(Connections, PipelinedRequestsAreAnsweredInOrder) {
  start();
  new_future();
  control.finish_with("r1", control::OperationType::kOptimStep, control::OptimStepResult{});
  TestClient client(server->port());
  client.send(request_text("POST", "/api/v1/optim_step", kOptim) + poll_text("r1") + health() +
              request_text("GET", "/nowhere", "") + request_text("POST", "/api/v1/optim_step", "{", {}) + health());
  const int expected[] = {200, 200, 200, 404, 422, 200};
  for (const int status : expected) EXPECT_EQ(client.read_reply().status, status);
}

TEST_F(Connections, PipelinedRequestBehindAnOpenPollWaitsForIt) {
  start();
  new_future();
  TestClient client(server->port());
  client.send(poll_text("r1") + health());
  control.await_waits(1);
  control.finish_with("r1", control::OperationType::kOptimStep, control::OptimStepResult{});
  EXPECT_EQ(client.read_reply().body, R"({"metrics":{}})");
  EXPECT_EQ(client.read_reply().body, R"({"status":"ok","ready":true,"role":"leader"})");
}

TEST_F(Connections, ChunkedBodiesAreRead) {
  start();
  TestClient client(server->port());
  const Headers chunked = {{"Transfer-Encoding", "chunked"}, {"Content-Length", ""}};
  client.send(request_text("POST", "/api/v1/optim_step", "", chunked));
  client.send("5\r\n{\"mod\r\n");
  client.send("1c;x=1\r\nel_id\":\"m\",\"adam_params\":{}}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 200);
  client.send(request_text("POST", "/api/v1/optim_step", "zz\r\n", chunked));
  expect_refusal(client.read_reply(), 400, "HTTP");
}

// The parser keeps them until their end, and nobody is charged for them.
TEST_F(Connections, LongChunkHeadsAndTrailersAreRefused) {
  start();
  const Headers chunked = {{"Transfer-Encoding", "chunked"}, {"Content-Length", ""}};
  for (const char* begin : {"5;", "0\r\nX-Long: "}) {
    TestClient client(server->port());
    client.send(request_text("POST", "/api/v1/optim_step", begin + std::string(10'000, 'x'), chunked));
    expect_refusal(client.read_reply(), 400, "longer than 4096 bytes");
    EXPECT_TRUE(client.at_end()) << begin;
  }
}

// Otherwise the body would be parsed as the next request (request smuggling).
TEST_F(Connections, AmbiguousFramingIsRefused) {
  start();
  const std::string inner = health();
  const std::string length = std::to_string(inner.size());
  for (const std::string& head : {std::string("HTTP/1.1\r\nTransfer-Encoding: gzip\r\n"),
                                  std::string("HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n"),
                                  std::string("HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n"),
                                  std::string("HTTP/1.1\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"),
                                  std::string("HTTP/1.0\r\nTransfer-Encoding: chunked\r\n"),
                                  "HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: " + length + "\r\n",
                                  "HTTP/1.1\r\nContent-Length: " + length + "\r\nTransfer-Encoding: chunked\r\n",
                                  "HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: " + length + "\r\n"}) {
    TestClient client(server->port());
    client.send("GET /api/v1/healthz " + head + "Host: x\r\n\r\n" + inner);
    expect_refusal(client.read_reply(), 400, "HTTP");
    EXPECT_TRUE(client.at_end()) << head;
  }
}

TEST_F(Connections, ExpectContinueIsAnswered) {
  start();
  TestClient client(server->port());
  const std::string text = request_text("POST", "/api/v1/optim_step", kOptim, {{"Expect", "100-continue"}});
  client.send(text.substr(0, text.find("\r\n\r\n") + 4));
  EXPECT_EQ(client.read_reply().status, 100);
  client.send(kOptim);
  EXPECT_EQ(client.read_reply().status, 200);
}

// ---- limits

TEST_F(Connections, DeclaredBodyOverTheLimitIsRefusedWithoutReading) {
  options.limits.request_body_bytes_max = 1000;
  start();
  TestClient client(server->port());
  Headers headers = kProtobufHeaders;
  headers["Content-Length"] = "100000000";
  client.send(request_text("POST", "/api/v1/forward_backward", "", headers));
  const Reply reply = client.read_reply();
  expect_refusal(reply, 413, "request_body_bytes_max");
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
  // A short body is read to its end, and the connection stays open.
  TestClient second(server->port());
  second.send(request_text("POST", "/api/v1/forward_backward", std::string(2000, 'x'), kProtobufHeaders) + health());
  EXPECT_EQ(second.read_reply().status, 413);
  EXPECT_EQ(second.read_reply().status, 200);
}

TEST_F(Connections, LargeBodyNeedsAKey) {
  start();
  TestClient declared(server->port());
  declared.send(request_text("GET", "/api/v1/healthz", "", {{"Content-Length", "1000000"}}));
  expect_refusal(declared.read_reply(), 413, "16384 bytes (what this endpoint takes");
  TestClient chunked(server->port());
  chunked.send(request_text("GET", "/api/v1/healthz", "", {{"Transfer-Encoding", "chunked"}, {"Content-Length", ""}}));
  for (int i = 0; i < 10; ++i) chunked.send("1000\r\n" + std::string(4096, 'x') + "\r\n");
  expect_refusal(chunked.read_reply(), 413, "16384 bytes (what this endpoint takes");
}

TEST_F(Connections, LowerLimitOfARouteIsNamed) {
  start();
  const Headers large = {{"Content-Length", "20000000"}};
  for (const char* target : {"/api/v1/telemetry", "/oai/api/v1/completions"}) {
    const Reply reply = call("POST", target, "", large);
    EXPECT_EQ(reply.status, 413);
    EXPECT_NE(reply.body.find("what this endpoint takes at most"), std::string::npos) << reply.body;
    EXPECT_EQ(reply.body.find("request_body_bytes_max"), std::string::npos) << reply.body;
  }
  // The server's limit applies if it is lower.
  stop();
  options.limits.request_body_bytes_max = 100'000;
  start();
  EXPECT_NE(call("POST", "/api/v1/telemetry", "", large).body.find("100000 bytes (limits.request_body_bytes_max)"),
            std::string::npos);
}

// A body that a route cannot need costs neither memory nor a decoder's time, whatever it is compressed to.
TEST_F(Connections, RoutesThatNeedNoLargeBodyTakeNone) {
  start();
  std::string padded = R"({"session_id":"s-alice","x":")" + std::string(70'000, 'x') + R"("})";
  const char* const kRule = "65536 bytes (what this endpoint takes at most)";
  expect_refusal(post("session_heartbeat", padded), 413, kRule);
  expect_refusal(post("session_heartbeat", zstd(padded), {{"Content-Encoding", "zstd"}}), 413, kRule);
  EXPECT_TRUE(control.calls.empty());
  std::set<std::string_view> large;
  for (const Route& route : routes()) {
    if (route.body_bytes_max > kSmallBody) large.insert(route.pattern);
  }
  const std::set<std::string_view> expected = {
      "/api/v1/asample",   "/api/v1/forward",         "/api/v1/forward_backward",    "/api/v1/retrieve_futures",
      "/api/v1/telemetry", "/oai/api/v1/completions", "/oai/api/v1/chat/completions"};
  EXPECT_EQ(large, expected);
}

TEST_F(Connections, ChunkedBodyOverTheLimitIsRefused) {
  options.limits.request_body_bytes_max = 1000;
  start();
  TestClient client(server->port());
  Headers headers = kProtobufHeaders;
  headers["Transfer-Encoding"] = "chunked";
  headers["Content-Length"] = "";
  client.send(request_text("POST", "/api/v1/forward_backward", "", headers));
  for (int i = 0; i < 3; ++i) client.send("190\r\n" + std::string(400, 'x') + "\r\n");
  expect_refusal(client.read_reply(), 413, "request_body_bytes_max");
}

TEST_F(Connections, ZstdBombIsRefused) {
  start();
  std::string bomb;
  const std::string frame = zstd(std::string(32 << 20, '\0'));
  for (int i = 0; i < 100; ++i) bomb += frame;  // several frames, so that the size in the first is too small
  Headers headers = kProtobufHeaders;
  headers["Content-Encoding"] = "zstd";
  expect_refusal(post("forward_backward", bomb, headers), 413, "decompressed");
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
}

TEST_F(Connections, HeadersHaveALimit) {
  options.limits.header_bytes_max = 10'000;
  start();
  const std::string limit = "limits.header_bytes_max";
  expect_refusal(call("GET", "/api/v1/healthz", "", {{"X-Long", std::string(20'000, 'x')}}), 431, limit);
  expect_refusal(call("GET", "/" + std::string(20'000, 'x')), 431, limit);
  EXPECT_EQ(call("GET", "/api/v1/healthz", "", {{"X-Long", std::string(8'000, 'x')}}).status, 200);
}

// Beast keeps each field that is complete, and limits only what it has not parsed: four bytes of a stranger took 64.
TEST_F(Connections, HeadsOfManyFieldsAreRefused) {
  start();
  std::string head = "GET /api/v1/healthz HTTP/1.1\r\n";
  for (int i = 0; i < 1000; ++i) head += "a:\r\n";
  TestClient client(server->port());
  client.send(head + "\r\n");
  expect_refusal(client.read_reply(), 431, "128 fields");
  EXPECT_TRUE(client.at_end());
  TestClient endless(server->port());
  endless.send(head);
  expect_refusal(endless.read_reply(), 431, "128 fields");
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
}

TEST_F(Connections, HeadsThatArriveInLinesAreLimitedAsAWhole) {
  start();
  // The server reads four lines at a time, and the first byte of the next one. Of three bytes or more Beast would look
  // for the end of the head before it parses on, and limit that.
  constexpr size_t kLineBytes = 1024;
  const std::string target = "/api/v1/healthz?" + std::string(kLineBytes - 32, 'x');
  std::string head = "GET " + target + " HTTP/1.1\r\n";
  ASSERT_EQ(head.size(), kLineBytes - 1);
  for (int i = 0; i < 99; ++i) head += "X-Long: " + std::string(kLineBytes - 10, 'x') + "\r\n";
  TestClient client(server->port());
  for (size_t sent = 0; sent < head.size(); sent += 4 * kLineBytes) client.send(head.substr(sent, 4 * kLineBytes));
  client.send("\r\n");
  expect_refusal(client.read_reply(), 431, "limits.header_bytes_max");
}

TEST_F(Connections, TrailersOfManyFieldsAreRefused) {
  start();
  const std::string head =
      request_text("POST", "/api/v1/optim_step", "", {{"Transfer-Encoding", "chunked"}, {"Content-Length", ""}});
  const std::string body = "21\r\n" + std::string(kOptim) + "\r\n0\r\n";
  TestClient client(server->port());
  client.send(head + body + "X-One: 1\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 200);
  std::string trailer;
  for (int i = 0; i < 200; ++i) trailer += "a:\r\n";
  client.send(head + body + trailer + "\r\n");
  expect_refusal(client.read_reply(), 431, "128 fields");
}

TEST_F(Connections, UnfinishedHeadsOfAnAddressAreLimited) {
  options.io_threads = 1;                              // so that one is refused at a time
  options.limits.unfinished_head_bytes_max = 1 << 20;  // two heads of 60,000 bytes for an address
  start();
  const telemetry::testing::RecordedMetrics metrics;
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<TestClient>(server->port()));
    clients.back()->send("GET /nowhere HTTP/1.1\r\nX-Long: " + std::string(60'000, 'x'));
  }
  while (metrics.counter("tuft.http.rejected", {{"reason", "heads_overloaded"}}) < 3) std::this_thread::yield();
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200) << "short heads are not counted";
  std::map<int, int> statuses;
  for (const auto& client : clients) {
    client->send("\r\n\r\n");
    ++statuses[client->read_reply().status];
  }
  EXPECT_EQ(statuses, (std::map<int, int>{{404, 2}, {503, 3}}));
}

TEST_F(Connections, DamagedHttpIsRefusedAsJson) {
  start();
  for (const char* text : {"hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                           "POST /api/v1/x HTTP/1.1\r\nContent-Length: x\r\n\r\n", "\x16\x03\x01\x02 tls \r\n\r\n"}) {
    TestClient client(server->port());
    client.send(text);
    expect_refusal(client.read_reply(), 400, "HTTP");
    EXPECT_TRUE(client.at_end());
  }
}

TEST_F(Connections, SlowRequestTimesOutAndIdleConnectionCloses) {
  options.limits.request_timeout_seconds = 1;
  options.limits.idle_timeout_seconds = 1;
  start();
  TestClient slow_head(server->port());
  slow_head.send("GET /api/v1/hea");
  expect_refusal(slow_head.read_reply(), 408, "limits.request_timeout_seconds");
  TestClient slow_body(server->port());
  const std::string text = request_text("POST", "/api/v1/optim_step", kOptim);
  slow_body.send(text.substr(0, text.size() - 1));
  expect_refusal(slow_body.read_reply(), 408, "limits.request_timeout_seconds");
  TestClient idle(server->port());
  EXPECT_TRUE(idle.at_end());
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
}

TEST_F(Connections, ConnectionsOverTheLimitAreRefused) {
  options.limits.connections_max = 2;
  start();
  TestClient first(server->port());
  first.send(health());
  EXPECT_EQ(first.read_reply().status, 200);
  TestClient second(server->port());
  second.send(health());
  EXPECT_EQ(second.read_reply().status, 200);
  TestClient third(server->port());
  expect_refusal(third.read_reply(), 503, "connections_max");
  EXPECT_TRUE(third.at_end());
  first.close();
  for (int i = 0; i < 1000; ++i) {
    TestClient next(server->port());
    next.send(health());
    if (next.read_reply().status == 200) return;
  }
  FAIL() << "a closed connection did not make room";
}

// ---- long polls

TEST_F(Connections, PollIsAnsweredWhenTheFutureFinishes) {
  start();
  new_future();
  TestClient client(server->port());
  client.send(poll_text("r1"));
  control.await_waits(1);
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200) << "a poll holds nobody up";
  control.finish_with("r1", control::OperationType::kOptimStep, control::OptimStepResult{{{"step", 1}}});
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, R"({"metrics":{"step":1}})");
}

TEST_F(Connections, PollThatTimesOutIsAnswered408) {
  options.long_poll = 60 * kMillisecond;
  start();
  new_future();
  TestClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    client.send(poll_text("r1"));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 408);
    EXPECT_EQ(reply.body, R"({"type":"try_again","request_id":"r1","queue_state":"active"})");
    EXPECT_EQ(reply.headers.at("content-length"), std::to_string(reply.body.size()));
  }
  EXPECT_EQ(control.waits(), 0U);
}

TEST_F(Connections, DisconnectEndsTheWait) {
  start();
  new_future();
  {
    TestClient client(server->port());
    client.send(poll_text("r1"));
    control.await_waits(1);
  }
  control.await_waits(0);
  control.finish_with("r1", control::OperationType::kOptimStep, control::OptimStepResult{});
  TestClient again(server->port());
  again.send(poll_text("r1"));
  EXPECT_EQ(again.read_reply().status, 200);
}

TEST_F(Connections, AClientThatEndsItsSendingGetsAnAnswerToItsPoll) {
  start();
  new_future();
  TestClient client(server->port());
  client.send(poll_text("r1"));
  control.await_waits(1);
  client.end_sending();
  EXPECT_EQ(client.read_reply().status, 408);
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(control.waits(), 0U);
}

TEST_F(Connections, FuturesThatFinishWhilePollsTimeOutAreNeverLost) {
  options.long_poll = 2 * kMillisecond;
  options.io_threads = 2;
  start();
  constexpr int kFutures = 200;
  for (int i = 0; i < kFutures; ++i) new_future();
  std::thread finisher([&] {
    for (int i = 1; i <= kFutures; ++i) {
      control.finish_with("r" + std::to_string(i), control::OperationType::kOptimStep, control::OptimStepResult{});
    }
  });
  TestClient client(server->port());
  for (int i = 1; i <= kFutures; ++i) {
    Reply reply;
    do {
      client.send(poll_text("r" + std::to_string(i)));
      reply = client.read_reply();
    } while (reply.status == 408);
    EXPECT_EQ(reply.status, 200);
  }
  finisher.join();
}

TEST_F(Connections, UsersPollSideBySide) {
  start();
  new_future();
  ASSERT_EQ(post("optim_step", kOptim, {{"X-API-Key", "tml-bob"}}).status, 200);
  TestClient alice(server->port());
  TestClient bob(server->port());
  alice.send(poll_text("r1"));
  bob.send(poll_text("r2", {{"X-API-Key", "tml-bob"}}));
  control.await_waits(2);
  control.finish_with("r2", control::OperationType::kOptimStep, control::OptimStepResult{{{"bob", 1}}});
  EXPECT_EQ(bob.read_reply().body, R"({"metrics":{"bob":1}})");
  control.finish_with("r1", control::OperationType::kOptimStep, control::OptimStepResult{{{"alice", 1}}});
  EXPECT_EQ(alice.read_reply().body, R"({"metrics":{"alice":1}})");
}

TEST_F(Connections, LargeResultsAreSentCompletely) {
  start();
  new_future();
  std::string bytes(20 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); i += 4096) bytes[i] = static_cast<char>(i >> 12);
  control.finish_with("r1", control::OperationType::kForward, control::ProtobufResult{bytes});
  TestClient client(server->port());
  client.send(poll_text("r1", {{"Accept", "application/x-protobuf"}}) + health());
  EXPECT_EQ(client.read_reply().body, bytes);
  EXPECT_EQ(client.read_reply().status, 200);
}

// ---- shutdown

TEST_F(Connections, StopAnswersOpenPollsAndReturnsSoon) {
  start();
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 1; i <= 40; ++i) {
    new_future();
    clients.push_back(std::make_unique<TestClient>(server->port()));
    clients.back()->send(poll_text("r" + std::to_string(i)));
  }
  TestClient idle(server->port());
  TestClient half(server->port());
  half.send("POST /api/v1/optim");
  control.await_waits(40);
  const uint16_t port = server->port();
  const auto begin = steady_clock::now();
  stop(300 * kMillisecond);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(3000));
  for (auto& client : clients) {
    const Reply reply = client->read_reply();
    EXPECT_EQ(reply.status, 408);
    EXPECT_NE(reply.body.find("try_again"), std::string::npos);
    EXPECT_EQ(reply.headers.at("connection"), "close");
    EXPECT_TRUE(client->at_end());
  }
  EXPECT_TRUE(idle.at_end());
  EXPECT_EQ(control.waits(), 0U);
  EXPECT_FALSE(TestClient(port).connected());
}

TEST_F(Connections, StopBeforeRunReturnsAtOnceAndPortIsFreeAgain) {
  options.port = 0;
  Result<std::unique_ptr<Server>> made = Server::create(options, control);
  ASSERT_TRUE(made.ok());
  const uint16_t port = (*made)->port();
  Server::Options same = options;
  same.port = port;
  const auto second = Server::create(same, control);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(port)), std::string::npos);
  (*made)->stop();
  (*made)->run();
  made = Server::create(same, control);
  EXPECT_TRUE(made.ok());
}

TEST_F(Connections, FutureThatFinishesAfterTheServerIsHarmless) {
  std::function<void(Result<control::FutureSnapshot>)> late;
  start();
  new_future();
  TestClient client(server->port());
  client.send(poll_text("r1"));
  control.await_waits(1);
  late = control.steal_wait();
  stop();
  late(control::FutureSnapshot{});
}

}  // namespace
}  // namespace tuft::api
