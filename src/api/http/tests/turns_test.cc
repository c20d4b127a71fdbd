// Tests that the connections of an I/O thread take turns.
#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include "api/tests/test_client.h"

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

// More than the kernel sends at once.
Result<Answer> handle_large(Exchange&) {
  journal->requests.emplace_back("large");
  return Answer(json_response(std::string(100'000, ' ')));
}

constexpr Route kTurnRoutes[] = {
    {.method = Method::kGet, .pattern = "/first", .handler = handle_first},
    {.method = Method::kGet, .pattern = "/next", .handler = [](Exchange&) { return note("next"); }},
    {.method = Method::kGet, .pattern = "/other", .handler = [](Exchange&) { return note("other"); }},
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
