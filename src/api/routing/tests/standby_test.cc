// A server that stands by, over a real socket.
#include "api/routing/standby.h"

#include <algorithm>
#include <string>
#include <vector>

#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

class StandbyServer : public ServerTest {
 protected:
  void SetUp() override {
    options.is_first = false;
    options.standby = [] {
      return StandbyFacts{"http://leader:1", system_clock().monotonic() - 7 * kSecond - kSecond / 2};
    };
    start();
  }
};

void expect_referred(const Reply& reply) {
  expect_refusal(reply, 503, R"("leader":"http://leader:1")");
  EXPECT_TRUE(reply.has("retry-after"));
}

TEST_F(StandbyServer, HealthSaysItsRole) {
  EXPECT_EQ(call("GET", "/api/v1/healthz").body, R"({"status":"ok","ready":false,"role":"standby"})");
  EXPECT_EQ(call("GET", "/api/v1/healthz").status, 200);
  EXPECT_EQ(call("GET", "/api/v1/healthz?role=leader").status, 503);
  EXPECT_EQ(call("GET", "/api/v1/healthz?role=king").status, 422);
}

TEST_F(StandbyServer, ReadsAreAnsweredWithTheirAge) {
  const Reply reply = call("GET", "/api/v1/get_server_capabilities");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("x-tuft-state-age"), "7");
}

TEST_F(StandbyServer, ChangesAreReferredToTheLeaderAndNotTried) {
  expect_referred(post("create_session", "{}"));
  expect_referred(post("asample", "not even JSON"));
  expect_referred(post("an_operation_of_a_newer_sdk", "{}"));
  EXPECT_TRUE(control.calls.empty());
}

TEST_F(StandbyServer, WhatIsNotThereMayBeAtTheLeader) {
  expect_referred(call("GET", "/api/v1/samplers/s:sample:7"));
  expect_referred(post("retrieve_future", R"({"request_id":"r0"})"));
  expect_referred(post("retrieve_future", R"({"request_id":"evicted"})"));
}

TEST_F(StandbyServer, OtherErrorsAreItsOwn) {
  EXPECT_EQ(post("get_info", "{").status, 422);
  EXPECT_EQ(call("GET", "/api/v1/sessions", "", {{"X-API-Key", "wrong"}}).status, 403);
}

TEST_F(StandbyServer, StrangersDoNotLearnWhereTheLeaderIs) {
  for (const char* path : {"/console/login", "/api/v1/archives", "/api/v1/trace_exports", "/api/v1/healthz"}) {
    EXPECT_EQ(call("GET", path, "", {{"X-API-Key", ""}}).body.find("leader:1"), std::string::npos) << path;
  }
  EXPECT_EQ(post("create_session", "{}", {{"X-API-Key", ""}}).status, 401);
}

TEST_F(StandbyServer, LaterRequestsAreForTheNewControlPlane) {
  const auto next = std::make_shared<FakeControl>();
  ASSERT_TRUE(next->optim_step(control::UserId("alice"), {}, {}).ok());
  next->fail_with("r1", invalid_argument("of the new one", ""));
  expect_referred(post("retrieve_future", R"({"request_id":"r1"})"));
  server->replace_control(next);
  const Reply reply = post("retrieve_future", R"({"request_id":"r1"})");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_NE(reply.body.find("of the new one"), std::string::npos) << reply.body;
}

// Each route that answers at a standby is named here, so that none gets `reads` by mistake.
TEST(StandbyRoutes, OnlyTheseRead) {
  std::vector<std::string> found;
  for (const Route& route : routes()) {
    if (route.reads) found.push_back(std::string(method_name(route.method)) + " " + std::string(route.pattern));
    EXPECT_FALSE(route.reads && route.durable) << route.pattern;
  }
  std::sort(found.begin(), found.end());
  const std::vector<std::string> expected = {
      "GET /api/v1/audit",
      "GET /api/v1/auth/apikey/me",
      "GET /api/v1/billing/usage/checkpoints/current",
      "GET /api/v1/billing/usage/events",
      "GET /api/v1/checkpoints",
      "GET /api/v1/get_server_capabilities",
      "GET /api/v1/healthz",
      "GET /api/v1/samplers/{sampler_id}",
      "GET /api/v1/sessions",
      "GET /api/v1/sessions/{session_id}",
      "GET /api/v1/training_runs",
      "GET /api/v1/training_runs/{run_id}",
      "GET /api/v1/training_runs/{run_id}/checkpoints",
      "GET /docs",
      "GET /metrics",
      "GET /openapi.json",
      "POST /api/v1/client/config",
      "POST /api/v1/client/dynamic_config",
      "POST /api/v1/get_info",
      "POST /api/v1/retrieve_future",
      "POST /api/v1/sessions/search",
      "POST /api/v1/weights_info",
  };
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace tuft::api
