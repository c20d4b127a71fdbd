// Tests of sessions, runs and checkpoints over a real socket.
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

const Headers kBob = {{"X-API-Key", "tml-bob"}};
const char* const kTraining =
    R"({"checkpoint_id":"weights/0001","checkpoint_type":"training","time":"2026-01-31T12:00:00.000000+00:00",)"
    R"("tinker_path":"tinker://s1:train:0/weights/0001","size_bytes":123,"public":false,)"
    R"("expires_at":"2026-02-01T12:00:00.000000+00:00"})";
const char* const kSampler =
    R"({"checkpoint_id":"sampler_weights/a","checkpoint_type":"sampler","time":"2026-01-31T13:00:00.000000+00:00",)"
    R"("tinker_path":"tinker://s1:train:0/sampler_weights/a","size_bytes":45,"public":true,"expires_at":null})";
const std::string kRun =
    R"({"training_run_id":"s1:train:0","base_model":"base/model","model_owner":"alice","is_lora":true,"lora_rank":8,)"
    R"("corrupted":false,"last_request_time":"2026-01-31T14:00:00.000000+00:00","last_checkpoint":)" +
    std::string(kTraining) + R"(,"last_sampler_checkpoint":null,"user_metadata":{"k":"v"}})";

class Rest : public ServerTest {
 protected:
  void SetUp() override { start(); }

  Reply get(const std::string& path, const Headers& headers = {}) {
    return call("GET", "/api/v1/" + path, "", headers);
  }
  Reply put(const std::string& path, const std::string& body, Headers headers = {}) {
    headers["Content-Length"] = std::to_string(body.size());
    return call("PUT", "/api/v1/" + path, body, headers);
  }
};

TEST_F(Rest, SessionsArePaged) {
  EXPECT_EQ(get("sessions").body, R"({"sessions":["s3","s2","s1"],"cursor":{"offset":0,"limit":20,"total_count":3}})");
  EXPECT_EQ(get("sessions?limit=1&offset=1&access_scope=accessible").body,
            R"({"sessions":["s2"],"cursor":{"offset":1,"limit":1,"total_count":3}})");
  EXPECT_EQ(get("sessions?offset=9").body, R"({"sessions":[],"cursor":{"offset":9,"limit":20,"total_count":3}})");
  EXPECT_EQ(get("sessions", kBob).body, R"({"sessions":[],"cursor":{"offset":0,"limit":20,"total_count":0}})");
}

TEST_F(Rest, WrongPagesAndScopesAreNamed) {
  expect_refusal(get("sessions?limit=0"), 422, "limit: must be an integer from 1 to 500");
  expect_refusal(get("training_runs?limit=501"), 422, "limit");
  expect_refusal(get("checkpoints?limit=1001"), 422, "limit: must be an integer from 1 to 1000");
  expect_refusal(get("training_runs?offset=-1"), 422, "offset");
  expect_refusal(get("training_runs/s1:train:0?access_scope=all"), 422,
                 "access_scope: must be one of owned, accessible");
  expect_refusal(get("training_runs?project_id=%01"), 422, "project_id");
}

TEST_F(Rest, SessionListsItsRunsAndSamplers) {
  EXPECT_EQ(get("sessions/s1").body,
            R"({"training_run_ids":["s1:train:0"],"sampler_ids":["s1:sample:0"],"user_metadata":{}})");
  const Reply foreign = get("sessions/s1", kBob);
  expect_refusal(foreign, 404, "session");
  EXPECT_EQ(foreign.body, get("sessions/unknown").body);
  expect_refusal(get("sessions/a b"), 400, "");
  expect_refusal(get("sessions/a%20b"), 404, "session");
}

TEST_F(Rest, OnlyTheOwnerChangesTheProjectOfASession) {
  const Reply reply = put("sessions/s1/project", R"({"project_id":"p 1"})");
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.body, "");
  EXPECT_EQ(control.fake_catalog.project(), "p 1");
  expect_refusal(put("sessions/s1/project", R"({"project_id":"p 2"})", kBob), 404, "session");
  expect_refusal(put("sessions/s1/project", "{}"), 422, "project_id: is required");
  expect_refusal(put("sessions/s1/project", R"({"project_id":"a\nb"})"), 422, "project_id: must be a line");
  EXPECT_EQ(control.fake_catalog.project(), "p 1");
  EXPECT_EQ(call("POST", "/api/v1/sessions/s1/project", "{}").headers.at("allow"), "PUT");
}

TEST_F(Rest, TrainingRunsHaveEveryFieldOfTheSdk) {
  const std::string cursor = R"(,"cursor":{"offset":0,"limit":20,"total_count":1}})";
  EXPECT_EQ(get("training_runs").body, R"({"training_runs":[)" + kRun + "]" + cursor);
  EXPECT_EQ(get("training_runs?project_id=p%201").body, R"({"training_runs":[)" + kRun + "]" + cursor);
  EXPECT_EQ(get("training_runs?project_id=other").body,
            R"({"training_runs":[],"cursor":{"offset":0,"limit":20,"total_count":0}})");
  EXPECT_EQ(get("training_runs/s1:train:0").body, kRun);
}

TEST_F(Rest, ForeignRunIsVisibleOnlyIfAccessible) {
  const Reply foreign = get("training_runs/s1:train:0", kBob);
  expect_refusal(foreign, 404, "training run");
  EXPECT_EQ(foreign.body, get("training_runs/s9:train:0", kBob).body);
  EXPECT_EQ(get("training_runs/s1:train:0?access_scope=accessible", kBob).body, kRun);
  expect_refusal(get("training_runs/s1:train:0/checkpoints", kBob), 404, "training run");
}

TEST_F(Rest, CheckpointsOfARunAreUnpagedByDefault) {
  const std::string both = std::string(R"({"checkpoints":[)") + kTraining + "," + kSampler + R"(],"cursor":)";
  EXPECT_EQ(get("training_runs/s1:train:0/checkpoints").body, both + "null}");
  EXPECT_EQ(get("training_runs/s1:train:0/checkpoints?limit=5").body,
            both + R"({"offset":0,"limit":5,"total_count":2}})");
  EXPECT_EQ(get("checkpoints").body, both + R"({"offset":0,"limit":100,"total_count":2}})");
}

TEST_F(Rest, CheckpointActionsReachTheNamedCheckpoint) {
  const std::string place = "training_runs/r/checkpoints/weights/a";
  EXPECT_EQ(post(place + "/publish", "").status, 204);
  EXPECT_EQ(call("DELETE", "/api/v1/" + place + "/publish").status, 204);
  EXPECT_EQ(put(place + "/ttl", R"({"ttl_seconds":60})").status, 204);
  EXPECT_EQ(put(place + "/ttl", R"({"ttl_seconds":null})").status, 204);
  const Reply removed = call("DELETE", "/api/v1/" + place);
  EXPECT_EQ(removed.status, 204);
  EXPECT_EQ(removed.body, "");
  const std::string path = " tinker://r/weights/a";
  EXPECT_EQ(control.fake_checkpoint_actions.calls(),
            (std::vector<std::string>{"publish" + path, "unpublish" + path, "ttl 60" + path, "ttl none" + path,
                                      "remove" + path}));
}

TEST_F(Rest, ForeignAndUnknownCheckpointsGiveTheSameError) {
  const Reply foreign = call("DELETE", "/api/v1/training_runs/r/checkpoints/weights/a", "", kBob);
  expect_refusal(foreign, 404, "checkpoint");
  EXPECT_EQ(foreign.body, call("DELETE", "/api/v1/training_runs/r/checkpoints/weights/b").body);
  expect_refusal(call("DELETE", "/api/v1/training_runs/r/checkpoints/other/a"), 400, "neither weights nor");
  expect_refusal(call("DELETE", "/api/v1/training_runs/r/checkpoints/weights/..%00"), 404, "endpoint");
  expect_refusal(call("DELETE", "/api/v1/training_runs/r/checkpoints/weights/.."), 400, "name");
}

TEST_F(Rest, TtlMustBePresentAndPositive) {
  const std::string place = "training_runs/r/checkpoints/weights/a/ttl";
  expect_refusal(put(place, "{}"), 422, "ttl_seconds: is required; null removes the expiry");
  expect_refusal(put(place, R"({"ttl_seconds":0})"), 400, "ttl_seconds");
  expect_refusal(put(place, R"({"ttl_seconds":"1"})"), 422, "ttl_seconds: must be an integer");
  EXPECT_TRUE(control.fake_checkpoint_actions.calls().empty());
}

TEST_F(Rest, ArchiveUrlIsBelowThePublicUrl) {
  stop();
  options.public_url = "https://tuft.example/api";
  start();
  const Reply reply = get("training_runs/r/checkpoints/weights/a/archive", {{"Host", "evil.example"}});
  EXPECT_TRUE(reply.body.starts_with(R"({"url":"https://tuft.example/api/api/v1/archives?ticket=ticket",)"))
      << reply.body;
}

TEST_F(Rest, ArchiveUrlNeedsNoKey) {
  const Reply reply = get("training_runs/r/checkpoints/weights/a/archive", {{"Host", "models.example:8080"}});
  EXPECT_EQ(reply.body, R"({"url":"http://models.example:8080/api/v1/archives?ticket=ticket",)"
                        R"("expires":"2023-11-14T22:28:20.000000+00:00"})");
  const Reply archive = get("archives?ticket=ticket", {{"X-API-Key", ""}});
  EXPECT_EQ(archive.status, 200);
  EXPECT_EQ(archive.body, control.fake_checkpoint_actions.archive);
  EXPECT_EQ(archive.headers.at("content-type"), "application/x-tar");
  EXPECT_EQ(archive.headers.at("content-disposition"), R"(attachment; filename="checkpoint.tar")");
  EXPECT_EQ(get("archives", {{"X-API-Key", ""}}).status, 403);
  EXPECT_EQ(get("archives?ticket=other", {{"X-API-Key", ""}}).status, 403);
}

TEST_F(Rest, OnlyTheOwnerFinishesAndCancels) {
  EXPECT_EQ(post("sessions/s-alice/finish", "{}").status, 200);
  EXPECT_EQ(post("cancel_future", R"({"request_id":"r1"})").status, 200);
  expect_refusal(post("cancel_future", "{}"), 422, "request_id");
  EXPECT_EQ(control.calls, (std::vector<std::string>{"alice end_session s-alice", "alice cancel_future r1"}));
}

TEST_F(Rest, ClientsThatJoinASamplerGetDistinctNumbers) {
  const Reply first = post("join_sampling_session", R"({"sampling_session_id":"s:sample:0"})");
  EXPECT_EQ(first.body.rfind(R"({"client_counter":)", 0), 0U) << first.body;
  EXPECT_NE(first.body, post("join_sampling_session", R"({"sampling_session_id":"s:sample:0"})").body);
  expect_refusal(post("join_sampling_session", R"({"sampling_session_id":"s:sample:9"})"), 404, "sampler");
}

TEST_F(Rest, DocumentsNeedNoKey) {
  EXPECT_EQ(call("GET", "/openapi.json", "", {{"X-API-Key", ""}}).status, 200);
  const Reply page = call("GET", "/docs", "", {{"X-API-Key", ""}});
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("/api/v1/asample"), std::string::npos);
}

TEST_F(Rest, AuthTokensAreRefused) {
  expect_refusal(post("auth/token", "{}"), 400, "API key");
}

}  // namespace
}  // namespace tuft::api
