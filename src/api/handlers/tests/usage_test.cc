// Tests of audit, billing, trace export and client telemetry over HTTP.
#include <simdjson.h>
#include <string>

#include "api/handlers/client_telemetry.h"
#include "api/routing/own_url.h"
#include "api/tests/test_client.h"
#include "base/time_text.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::api {
namespace {

using control::AuditAction;
using control::kHour;
using control::UsageKind;

const control::UserId kAlice{"alice"};

class UsageRoutes : public ServerTest {
 protected:
  void SetUp() override { start(); }

  static std::string window(Nanos from, Nanos until) {
    return "/api/v1/billing/usage/events?starting_on=" + time_text(from) + "&ending_before=" + time_text(until);
  }
  static Nanos this_hour() {
    const Nanos now = system_clock().wall();
    return now - now % kHour;
  }
};

TEST_F(UsageRoutes, BillingHasEachKindInTheFormOfTheSdk) {
  control::OperationKeys keys;
  keys.session = control::SessionId("s1");
  keys.run = control::RunId("s1:train:0");
  keys.base_model = "base/model";
  control.usage_ledger.add(kAlice, keys, UsageKind::kTraining, 11);
  keys.run = {};
  control.usage_ledger.add(kAlice, keys, UsageKind::kSamplingPrefill, 30);
  control.usage_ledger.add(kAlice, keys, UsageKind::kSamplingPrefillCached, 4);
  control.usage_ledger.add(kAlice, keys, UsageKind::kSamplingOutput, 5);
  control.usage_ledger.add(kAlice, keys, UsageKind::kCheckpoint, 2);
  control.usage_ledger.add(control::UserId("bob"), keys, UsageKind::kTraining, 999);
  const Reply reply = call("GET", window(this_hour() - kHour, this_hour() + kHour));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string common = R"({"bucket_start":")" + time_text(this_hour()) + R"(","bucket_end":")" +
                             time_text(this_hour() + kHour) +
                             R"(","base_model":"base/model","user_id":"alice","user_name":"alice","session_id":"s1",)"
                             R"("project_id":null,"training_run_id":)";
  EXPECT_EQ(reply.body,
            R"({"data":[)" + common +
                R"(null,"event_info":{"type":"sampling_prefill","cached":false,"token_count":30}},)" + common +
                R"("s1:train:0","event_info":{"type":"training","token_count":11}},)" + common +
                R"(null,"event_info":{"type":"sampling_sample","token_count":5}},)" + common +
                R"(null,"event_info":{"type":"sampling_prefill","cached":true,"token_count":4}},)" + common +
                R"(null,"event_info":{"type":"checkpoint","count":2}}],"sessions":{"s1":{"user_metadata":null}}})");
}

TEST_F(UsageRoutes, StorageIsListedByProject) {
  const std::string head = R"({"effective_rate_usd_per_gigabyte_month":null,"data":[)";
  const std::string project =
      R"({"project_id":"p 1","user_name":"alice","checkpoint_count":2,"size_bytes":1500000000,"size_gigabytes":1.5,)"
      R"("estimated_monthly_cost_usd":null}]})";
  const std::string path = "/api/v1/billing/usage/checkpoints/current";
  EXPECT_EQ(call("GET", path + "?project_id=p%201").body, head + project);
  EXPECT_EQ(call("GET", path).body,
            head +
                R"({"project_id":null,"user_name":"alice","checkpoint_count":1,"size_bytes":500000000,)"
                R"("size_gigabytes":0.5,"estimated_monthly_cost_usd":null},)" +
                project);
  EXPECT_EQ(call("GET", path, "", {{"X-API-Key", "tml-bob"}}).body, head + "]}");
}

TEST_F(UsageRoutes, InvalidWindowsAreRefusedByName) {
  const Nanos hour = this_hour();
  expect_refusal(call("GET", "/api/v1/billing/usage/events"), 422, "starting_on");
  expect_refusal(call("GET", window(hour + 1 * kSecond, hour + kHour)), 422, "on the hour");
  expect_refusal(call("GET", window(hour, hour)), 422, "ending_before");
  expect_refusal(call("GET", window(hour - 15 * 24 * kHour, hour)), 422, "14 days");
  expect_refusal(call("GET", window(hour + 2 * kHour, hour + 3 * kHour)), 422, "future");
  EXPECT_EQ(call("GET", window(hour - 14 * 24 * kHour, hour)).status, 200);
}

TEST_F(UsageRoutes, AuditListsTheEventsOfADay) {
  control.usage_ledger.audit({.action = AuditAction::kCheckpointSaved,
                              .user = kAlice,
                              .run = control::RunId("r"),
                              .tinker_path = "tinker://r/weights/a",
                              .purpose = "training"});
  control.usage_ledger.audit({.action = AuditAction::kRunCreated, .user = kAlice, .run = control::RunId("r")});
  const std::string all = call("GET", "/api/v1/audit?event_type=all").body;
  const std::string saved =
      R"("event":"checkpoint_saved","model_id":"r","tinker_path":"tinker://r/weights/a","purpose":"training",)"
      R"("event_details":{"actor":"you","training_run_id":"r","tinker_path":"tinker://r/weights/a","purpose":"training"}})";
  const std::string created = R"("event":"run_created","model_id":"r","tinker_path":null,"purpose":null,)"
                              R"("event_details":)";
  EXPECT_TRUE(all.starts_with(R"({"entries":[{"timestamp":"20)")) << all;
  EXPECT_NE(all.find(saved), std::string::npos) << all;
  EXPECT_GT(all.find(created), all.find(saved)) << all;
  const std::string of_checkpoints = call("GET", "/api/v1/audit?event_type=checkpoints").body;
  EXPECT_NE(of_checkpoints.find(saved), std::string::npos);
  EXPECT_EQ(of_checkpoints.find("run_created"), std::string::npos);
  EXPECT_EQ(call("GET", "/api/v1/audit?day=2026-01-01").body, R"({"entries":[]})");
  EXPECT_EQ(call("GET", "/api/v1/audit", "", {{"X-API-Key", "tml-bob"}}).body, R"({"entries":[]})");
  expect_refusal(call("GET", "/api/v1/audit?day=yesterday"), 422, "day");
  for (const std::string none : {"projects", "teams", "organizations"}) {
    EXPECT_EQ(call("GET", "/api/v1/audit?event_type=" + none).body, R"({"entries":[]})") << none;
  }
  EXPECT_NE(all.find(R"("event_details":{"actor":"you",)"), std::string::npos) << all;
  expect_refusal(call("GET", "/api/v1/audit?event_type=secrets"), 422, "event_type");
}

// An answer in one piece delayed other users.
TEST_F(UsageRoutes, ManyEventsComeInPieces) {
  constexpr int kEvents = 3000;
  for (int i = 0; i < kEvents; ++i) {
    const control::RunId run("r" + std::to_string(i));
    control.usage_ledger.audit({.action = AuditAction::kRunCreated, .user = kAlice, .run = run});
    control::OperationKeys keys;
    keys.session = control::SessionId("s" + std::to_string(i));
    keys.run = run;
    control.usage_ledger.add(kAlice, keys, UsageKind::kTraining, 1 + i);
  }
  const Nanos hour = this_hour();
  for (const std::string& target : {std::string("/api/v1/audit"), window(hour, hour + kHour)}) {
    TestClient client(server->port());
    client.send(request_text("GET", target, ""));
    EXPECT_NE(client.read_until("\r\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos) << target;
    std::string text;
    int pieces = 0;
    while (const size_t size = std::stoul(client.read_until("\r\n"), nullptr, 16)) {
      EXPECT_LT(size, size_t{1} << 20);
      text += client.read_bytes(size + 2).substr(0, size);
      ++pieces;
    }
    EXPECT_GT(pieces, 2) << target;
    simdjson::dom::parser parser;
    simdjson::dom::element answer;
    ASSERT_EQ(parser.parse(text).get(answer), simdjson::SUCCESS) << target;
    simdjson::dom::array list;
    ASSERT_EQ(answer[target.starts_with("/api/v1/audit") ? "entries" : "data"].get_array().get(list),
              simdjson::SUCCESS);
    EXPECT_EQ(list.size(), size_t{kEvents}) << target;
  }
  control.synchronize();
  stop();
  EXPECT_EQ(control.fake_generation.memory->total(), 0);
}

TEST_F(UsageRoutes, FailedTraceExportGivesTheReason) {
  const std::string answer = call("GET", "/api/v1/sessions/s-alice/trace_export").body;
  EXPECT_TRUE(answer.starts_with(R"({"status":"failed","error":")")) << answer;
  EXPECT_NE(answer.find("telemetry.enabled"), std::string::npos);
  expect_refusal(call("GET", "/api/v1/sessions/s-bob/trace_export"), 404, "session");
  EXPECT_EQ(call("GET", "/api/v1/trace_exports?token=nonsense", "", {{"X-API-Key", ""}}).status, 404);
}

TEST_F(UsageRoutes, ClientEventsContainNoSecretAndNoForeignSession) {
  telemetry::WithCollector collector;
  const std::string canary = "tml-canary-4711";
  const auto report = [&](const std::string& session) {
    return post("telemetry",
                R"({"events":[{"event":"GENERIC_EVENT","event_name":"user_error","severity":"ERROR","event_data":{)"
                R"("headers":{"X-API-Key":")" +
                    canary +
                    R"("}}},{"event":"UNHANDLED_EXCEPTION","severity":"ERROR",)"
                    R"("error_type":"ValueError","error_message":")" +
                    canary + R"(","traceback":")" + canary + R"("}],"session_id":")" + session +
                    R"(","sdk_version":"0.25.0"})");
  };
  EXPECT_EQ(report("s1").status, 200);
  EXPECT_EQ(report("of-somebody-else").status, 200);
  ASSERT_TRUE(collector.flush());
  int of_mine = 0;
  for (const auto& log : collector.receiver.logs()) {
    EXPECT_EQ(log.body.find(canary), std::string::npos);
    for (const auto& [key, value] : log.attributes) {
      const std::string text = telemetry::testing::text_of(log.attributes, key);
      EXPECT_EQ(text.find(canary), std::string::npos) << key;
      EXPECT_NE(text, "of-somebody-else") << key;
      if (key == "tuft.session_id" && text == "s1") ++of_mine;
    }
  }
  EXPECT_EQ(of_mine, 2);
}

TEST(ClientEventBudget, RefusesEventsUntilTheNextMinute) {
  ClientEventBudget budget;
  const control::UserId bob("bob");
  for (int i = 0; i < ClientEventBudget::kEventsPerMinute; ++i) EXPECT_TRUE(budget.take_event(kAlice, kSecond));
  EXPECT_FALSE(budget.take_event(kAlice, 2 * kSecond));
  EXPECT_TRUE(budget.take_event(bob, 2 * kSecond));
  EXPECT_TRUE(budget.take_bytes(kAlice, ClientEventBudget::kBytesPerMinute, 2 * kSecond));
  EXPECT_FALSE(budget.take_bytes(kAlice, 1, 2 * kSecond));
  EXPECT_TRUE(budget.take_event(kAlice, 61 * kSecond));
  EXPECT_TRUE(budget.take_bytes(kAlice, 1, 61 * kSecond));
}

}  // namespace
}  // namespace tuft::api
