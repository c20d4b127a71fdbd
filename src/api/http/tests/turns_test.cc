// Tests that the clients of an I/O thread, and each client's connections, take turns.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "api/tests/test_client.h"
#include "base/clock.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::api {
namespace {

// What the handlers did. Only the I/O thread writes it before the server stops.
struct Journal {
  std::promise<void> begun;
  std::promise<void> may_end;
  std::vector<std::string> requests;
};

Journal* journal = nullptr;

Result<Answer> note(std::string request) {
  journal->requests.push_back(std::move(request));
  return Answer(json_response("{}"));
}

// Keeps the I/O thread busy, while other requests arrive.
Result<Answer> handle_first(Exchange&) {
  journal->begun.set_value();
  journal->may_end.get_future().wait();
  return note("first");
}

// Takes long for an I/O thread.
Result<Answer> handle_long(Exchange& exchange) {
  const Nanos end = system_clock().monotonic() + kMillisecond;
  while (system_clock().monotonic() < end) continue;
  return note(exchange.user.str());
}

// More than the kernel sends at once.
Result<Answer> handle_large(Exchange&) {
  journal->requests.emplace_back("large");
  return Answer(json_response(std::string(100'000, ' ')));
}

constexpr Route kTurnRoutes[] = {
    {.method = Method::kGet, .pattern = "/first", .handler = handle_first},
    {.method = Method::kGet, .pattern = "/next", .handler = [](Exchange&) { return note("next"); }},
    {.method = Method::kGet, .pattern = "/other", .handler = [](Exchange&) { return note("other"); }},
    {.method = Method::kGet, .pattern = "/long", .handler = handle_long},
    {.method = Method::kGet, .pattern = "/large", .handler = handle_large},
};

class Turns : public ServerTest {
 protected:
  Turns() {
    journal = &journal_;
    options.routes = kTurnRoutes;
    options.io_threads = 1;
  }

  static std::string get(const std::string& target, const std::string& key = "tml-alice") {
    return request_text("GET", target, "", {{"X-API-Key", key}});
  }

  Journal journal_;
};

TEST_F(Turns, ARequestOfAnotherConnectionDoesNotWaitForAllThatOneClientSentAtOnce) {
  start();
  TestClient many(server->port());
  TestClient one(server->port());
  one.send(get("/nowhere"));
  EXPECT_EQ(one.read_reply().status, 404) << "it has a connection";
  std::string requests = get("/first");
  for (int i = 0; i < 8; ++i) requests += get("/next");
  many.send(requests);
  journal_.begun.get_future().wait();
  one.send(get("/other"));
  journal_.may_end.set_value();
  EXPECT_EQ(one.read_reply().status, 200);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(many.read_reply().status, 200);
  stop();
  ASSERT_EQ(journal_.requests.size(), 10U);
  EXPECT_EQ(journal_.requests.back(), "next");
}

TEST_F(Turns, AClientWithManyConnectionsHasAsManyTurnsAsAClientWithOne) {
  start();
  const telemetry::testing::RecordedMetrics metrics;
  TestClient first(server->port());
  std::vector<std::unique_ptr<TestClient>> many;
  for (int i = 0; i < 100; ++i) many.push_back(std::make_unique<TestClient>(server->port()));
  TestClient one(server->port());
  one.send(get("/nowhere"));
  EXPECT_EQ(one.read_reply().status, 404) << "the connections before it are accepted, too";
  first.send(get("/first"));
  journal_.begun.get_future().wait();
  for (const auto& client : many) client->send(get("/long"));
  one.send(get("/long", "tml-bob"));
  journal_.may_end.set_value();
  EXPECT_EQ(one.read_reply().status, 200);
  for (const auto& client : many) EXPECT_EQ(client->read_reply().status, 200);
  EXPECT_GE(metrics.count("tuft.http.turn_wait.duration"), 80U);
  stop();
  const auto& requests = journal_.requests;
  ASSERT_EQ(requests.size(), 102U);
  EXPECT_LT(std::find(requests.begin(), requests.end(), "bob") - requests.begin(), 20);
}

TEST_F(Turns, AClientThatDoesNotReadGetsNoFurtherAnswers) {
  start();
  TestClient silent(server->port());
  std::string requests;
  for (int i = 0; i < 60; ++i) requests += get("/large");
  silent.send(requests);
  TestClient other(server->port());
  for (int i = 0; i < 100; ++i) {  // in each of them the thread has time for an answer to the silent one
    other.send(get("/other"));
    EXPECT_EQ(other.read_reply().status, 200);
  }
  other.send(get("/first"));
  journal_.begun.get_future().wait();
  EXPECT_LT(std::count(journal_.requests.begin(), journal_.requests.end(), "large"), 20);
  journal_.may_end.set_value();
  for (int i = 0; i < 60; ++i) EXPECT_EQ(silent.read_reply().status, 200);
}

}  // namespace
}  // namespace tuft::api
