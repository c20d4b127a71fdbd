// Tests of the memory of what is received: bodies, heads, and what follows a request that waits.
#include <cstdint>
#include <malloc.h>
#include <memory>
#include <string>
#include <vector>

#include "api/tests/bodies.h"
#include "api/tests/test_client.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::api {
namespace {

int64_t allocated() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

class Receiving : public ServerTest {
 protected:
  Receiving() {
    options.limits.request_body_bytes_max = 1'000'000;
    options.limits.receiving_bytes_max = 1'500'000;
  }
  // The client waits for 100 Continue, which shows that the server has admitted the request.
  static std::string head(const std::string& user, size_t bytes) {
    Headers headers = kProtobufHeaders;
    headers["X-API-Key"] = "tml-" + user;
    headers["Content-Length"] = std::to_string(bytes);
    headers["Expect"] = "100-continue";
    return request_text("POST", "/api/v1/forward_backward", "", headers);
  }
  Reply judge(TestClient& client, const std::string& user, size_t bytes) {
    client.send(head(user, bytes));
    return client.read_reply();
  }
  void new_future() { ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200); }
  static std::string poll_text(const Headers& headers = {}) {
    return request_text("POST", "/api/v1/retrieve_future", R"({"request_id":"r1"})", headers);
  }
  static void expect_retry(const Reply& reply, int status) {
    expect_refusal(reply, status, "limits.receiving_bytes_max");
    EXPECT_EQ(reply.headers.at("retry-after"), "1");
    EXPECT_EQ(reply.headers.at("connection"), "close");
  }
};

TEST_F(Receiving, BodiesAreLimitedPerUserAndInTotal) {
  start();
  const telemetry::testing::RecordedMetrics metrics;
  TestClient first(server->port());
  EXPECT_EQ(judge(first, "alice", 900'000).status, 100);
  EXPECT_EQ(metrics.gauge("tuft.http.receiving.bytes"), 900'000);
  TestClient second(server->port());
  expect_retry(judge(second, "alice", 200'000), 429);
  TestClient third(server->port());
  expect_retry(judge(third, "bob", 700'000), 503);
  EXPECT_EQ(metrics.counter("tuft.http.rejected", {{"reason", "user_receiving_overloaded"}}), 1);
  EXPECT_EQ(metrics.counter("tuft.http.rejected", {{"reason", "receiving_overloaded"}}), 1);
  // Short bodies are still received, and so are other users' bodies that fit into the rest.
  TestClient fourth(server->port());
  EXPECT_EQ(judge(fourth, "alice", 60'000).status, 100);
  TestClient fifth(server->port());
  EXPECT_EQ(judge(fifth, "bob", 500'000).status, 100);
  // A body that has been received frees its bytes.
  first.send(std::string(900'000, '\xff'));
  EXPECT_EQ(first.read_reply().status, 400);
  EXPECT_EQ(judge(first, "alice", 900'000).status, 100);
}

TEST_F(Receiving, DisconnectFreesTheBytesOfItsBody) {
  start();
  {
    TestClient gone(server->port());
    EXPECT_EQ(judge(gone, "alice", 900'000).status, 100);
    gone.send(std::string(300'000, 'x'));
  }
  for (int i = 0; i < 1000; ++i) {
    TestClient next(server->port());
    if (judge(next, "alice", 900'000).status == 100) return;
  }
  FAIL() << "the room of a client that went was not given back";
}

TEST_F(Receiving, ChunkedBodyIsChargedWhileItArrives) {
  start();
  TestClient first(server->port());
  EXPECT_EQ(judge(first, "alice", 800'000).status, 100);
  TestClient chunked(server->port());
  Headers headers = kProtobufHeaders;
  headers["Transfer-Encoding"] = "chunked";
  headers["Content-Length"] = "";
  chunked.send(request_text("POST", "/api/v1/forward_backward", "", headers));
  for (int i = 0; i < 30; ++i) chunked.send("2710\r\n" + std::string(10'000, 'x') + "\r\n");
  expect_retry(chunked.read_reply(), 429);
  first.send(std::string(800'000, '\xff'));
  EXPECT_EQ(first.read_reply().status, 400);
  TestClient alone(server->port());
  alone.send(request_text("POST", "/api/v1/forward_backward", "", headers));
  for (int i = 0; i < 99; ++i) alone.send("2710\r\n" + std::string(10'000, '\xff') + "\r\n");
  alone.send("0\r\n\r\n");
  EXPECT_EQ(alone.read_reply().status, 400);
}

// It was kept until its last byte, 128 KiB for each connection of a stranger.
TEST_F(Receiving, ARefusedBodyIsNotKept) {
  options.io_threads = 1;
  start();
  const std::string text = request_text("POST", "/nowhere", std::string(60'000, 'x'), {{"X-API-Key", ""}});
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(std::make_unique<TestClient>(server->port()));
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
  const int64_t before = allocated();
  for (const auto& client : clients) client->send(text.substr(0, text.size() - 1));
  // Meanwhile it reads what has come.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
  EXPECT_LT(allocated() - before, 4'000'000);
  for (const auto& client : clients) {
    client->send("x");
    EXPECT_EQ(client->read_reply().status, 404);
  }
}

// It kept a buffer of 64 KiB or more, which nobody was charged for, until its client had gone.
TEST_F(Receiving, AConnectionThatClosesAfterARefusalKeepsNothing) {
  options.io_threads = 1;
  start();
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(std::make_unique<TestClient>(server->port()));
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
  const int64_t before = allocated();
  const std::string malformed = "GET / HTTP/1.1\r\nX-Long: " + std::string(60'000, 'x') + "\x01\r\n\r\n";
  for (const auto& client : clients) {
    client->send(malformed);
    expect_refusal(client->read_reply(), 400, "HTTP");
  }
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);  // meanwhile it waits for the last client, too
  EXPECT_LT(allocated() - before, 4'000'000);
}

// Up to 64 KiB of it were read, into a buffer of 128 KiB for each connection, and nobody was charged.
TEST_F(Receiving, WhatFollowsARequestThatWaitsStaysInTheKernel) {
  options.io_threads = 1;
  start();
  new_future();
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<TestClient>(server->port()));
    clients.back()->send(poll_text());
  }
  control.await_waits(clients.size());
  const int64_t before = allocated();
  for (const auto& client : clients) client->send(std::string(40'000, 'x'));
  // Meanwhile it would read what has come.
  for (int i = 0; i < 100; ++i) EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
  EXPECT_LT(allocated() - before, 2'000'000);
  for (const auto& client : clients) client->end_sending();
  for (const auto& client : clients) EXPECT_EQ(client->read_reply().status, 408) << "the end behind it is noticed";
}

TEST_F(Receiving, LongHeadsAreChargedUntilTheirRequestsAreAnswered) {
  options.io_threads = 1;
  options.limits.unfinished_head_bytes_max = 1 << 20;  // two heads of 60,000 bytes for a user
  start();
  new_future();
  const std::string poll = poll_text({{"X-Long", std::string(60'000, 'x')}});
  TestClient first(server->port());
  first.send(poll);
  TestClient second(server->port());
  second.send(poll);
  control.await_waits(2);
  TestClient third(server->port());
  third.send(poll);
  expect_refusal(third.read_reply(), 503, "limits.unfinished_head_bytes_max");
  TestClient other(server->port());  // of another user behind the same address
  const Headers of_bob = {{"X-Long", std::string(60'000, 'x')}, {"X-API-Key", "tml-bob"}};
  other.send(request_text("GET", "/api/v1/get_server_capabilities", "", of_bob));
  EXPECT_EQ(other.read_reply().status, 200);
  control.finish_with("r1", control::OperationType::kOptimStep, control::OptimStepResult{});
  EXPECT_EQ(first.read_reply().status, 200);
  EXPECT_EQ(second.read_reply().status, 200);
  TestClient fourth(server->port());
  fourth.send(poll);
  EXPECT_EQ(fourth.read_reply().status, 200);
}

}  // namespace
}  // namespace tuft::api
