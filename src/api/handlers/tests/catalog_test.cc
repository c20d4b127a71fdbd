// Tests of sessions, runs and checkpoints over a real socket.
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

const Headers kBob = {{"X-API-Key", "tml-bob"}};
const char* const kTraining =
    R"({"checkpoint_id":"weights/0001","checkpoint_type":"training","time":"2026-01-31T12:00:00.000000+00:00",)"
    R"("tinker_path":"tinker://s1:train:0/weights/0001","size_bytes":123,"public":false,)"
    R"("expires_at":"2026-02-01T12:00:00.000000+00:00","user_metadata":null})";
const char* const kSampler =
    R"({"checkpoint_id":"sampler_weights/a","checkpoint_type":"sampler","time":"2026-01-31T13:00:00.000000+00:00",)"
    R"("tinker_path":"tinker://s1:train:0/sampler_weights/a","size_bytes":45,"public":true,"expires_at":null,"user_metadata":null})";
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

// Their lists refuse the type "external", and the whole list with it.
TEST_F(Rest, SdksBefore028GetListsWithoutExternalCheckpoints) {
  const auto rows = [&](const std::string& header, const std::string& version) {
    const std::string lists[] = {"checkpoints", "training_runs/s1:train:0/checkpoints?limit=9"};
    int sum = 0;
    for (const std::string& list : lists) {
      const std::string body = get(list, {{header, version}}).body;
      sum += body.find("\"total_count\":1") != std::string::npos ? 1 : 2;
    }
    return sum;
  };
  for (const char* old : {"0.25.0", "0.27.2", "0.3"}) EXPECT_EQ(rows("X-Stainless-Package-Version", old), 2) << old;
  for (const char* other : {"0.28.0", "0.38.0", "1.0.0", "2.27.1", "0.x", "0.1x", "main", "0.99999999999"}) {
    EXPECT_EQ(rows("X-Stainless-Package-Version", other), 4) << other;
  }
  EXPECT_EQ(rows("X-SDK-Version", "0.27.0"), 2);
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

TEST_F(Rest, ACopyReadsItsHeadersAndAnswersWithItsPath) {
  const Headers headers = {{"X-Idempotency-Key", "k1"}, {"X-Tinker-Weights-Access-Token", "tml-bob"}};
  const Reply reply =
      post("copy_weights", R"({"source_path":"tinker://r/weights/a","destination_project_id":"p","ttl_seconds":7200})",
           headers);
  EXPECT_EQ(reply.body, R"({"tinker_path":"tinker://copy:train:0/weights/a"})");
  const control::CopyWeights request = control.fake_checkpoint_actions.last_copy();
  EXPECT_EQ(request.source_path, "tinker://r/weights/a");
  EXPECT_EQ(request.project_id, "p");
  EXPECT_EQ(request.ttl_seconds, 7200);
  EXPECT_EQ(request.idempotency_key, "k1");
  EXPECT_EQ(request.access_token, "tml-bob");
  post("copy_weights", R"({"source_path":"tinker://r/weights/a","weights_access_token":"body"})");
  EXPECT_EQ(control.fake_checkpoint_actions.last_copy().access_token, "body");
  expect_refusal(post("copy_weights", "{}"), 422, "source_path");
  expect_refusal(post("copy_weights", R"({"source_path":"x","session_id":"s1","model_seq_id":0})"), 400, "session_id");
  expect_refusal(post("copy_weights", R"({"source_path":"x","ttl_seconds":0})"), 422, "ttl_seconds");
  expect_refusal(post("copy_weights", R"({"source_path":"x"})", {{"X-Idempotency-Key", std::string(300, 'k')}}), 422,
                 "X-Idempotency-Key");
}

TEST_F(Rest, EachExternalFileHasAnAddressWithoutAKey) {
  const Reply reply =
      get("training_runs/r/checkpoints/external_weights/a/external_weights_urls", {{"Host", "models.example:8080"}});
  EXPECT_EQ(reply.body, R"({"urls":{"adapter_config.json":"http://models.example:8080/api/v1/archives?ticket=ticket",)"
                        R"("adapter_model.safetensors":"http://models.example:8080/api/v1/archives?ticket=other"},)"
                        R"("expires":"2023-11-14T22:28:20.000000+00:00"})");
  EXPECT_EQ(get("training_runs/r/checkpoints/external_weights/b/external_weights_urls").status, 404);
  EXPECT_EQ(get("training_runs/r/checkpoints/external_weights/../external_weights_urls").status, 400);
}

TEST_F(Rest, OnlyTheOwnerFinishesAndCancels) {
  EXPECT_EQ(post("sessions/s-alice/finish", R"({"reason":{"type":"errored"},"detail":"why"})").status, 200);
  EXPECT_EQ(control.last_finish.reason, control::FinishReason::kErrored);
  EXPECT_EQ(control.last_finish.detail, "why");
  expect_refusal(post("sessions/s-alice/finish", R"({"reason":{"type":"bored"}})"), 422, "reason.type");
  control.calls.clear();
  EXPECT_EQ(post("sessions/s-alice/finish", "{}").status, 200);
  EXPECT_EQ(post("cancel_future", R"({"request_id":"r1"})").status, 200);
  expect_refusal(post("cancel_future", "{}"), 422, "request_id");
  EXPECT_EQ(control.calls, (std::vector<std::string>{"alice end_session s-alice", "alice cancel_future r1"}));
}

TEST_F(Rest, ClientsThatJoinASamplerGetDistinctNumbers) {
  const Reply first = post("join_sampling_session", R"({"sampling_session_id":"s:sample:0"})");
  EXPECT_EQ(first.body.rfind(R"({"type":"join_sampling_session","client_counter":)", 0), 0U) << first.body;
  EXPECT_NE(first.body, post("join_sampling_session", R"({"sampling_session_id":"s:sample:0"})").body);
  expect_refusal(post("join_sampling_session", R"({"sampling_session_id":"s:sample:9"})"), 404, "sampler");
}

TEST_F(Rest, DocumentsNeedNoKey) {
  EXPECT_EQ(call("GET", "/openapi.json", "", {{"X-API-Key", ""}}).status, 200);
  const Reply page = call("GET", "/docs", "", {{"X-API-Key", ""}});
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("/api/v1/asample"), std::string::npos);
}

TEST_F(Rest, ASearchReadsItsQueryAndWritesWhatItFinds) {
  const Reply reply = post("sessions/search", R"({"session_id":"s1","project_ids":["p1"],"user_metadata":{"a":"b"},
      "display_name":" Nightly  RUN","owner":{"type":"user","owner_urns":["bob","alice"]},"limit":2,
      "statuses":[{"type":"failed"},{"type":"client_finished","reasons":["errored"]}],
      "cursor":{"last_created_at":"2026-01-31T12:00:00Z","last_session_id":"s2"}})");
  EXPECT_EQ(reply.body,
            R"({"sessions":[{"session_id":"s1","created_at":"2026-01-31T12:00:00.000000+00:00","owner":"alice",)"
            R"("project_id":"default","status":{"type":"client_finished","reason":{"type":"errored"},"detail":"why"},)"
            R"("checkpoints_count":2,"checkpoint_storage_bytes":168,"display_name":"nightly",)"
            R"("user_metadata":{"a":"b"}}],"next_cursor":{"last_created_at":"2026-01-31T12:00:00.000000+00:00",)"
            R"("last_session_id":"s1"}})");
  const control::SessionQuery query = control.fake_catalog.last_query();
  EXPECT_EQ(query.session_id, "s1");
  EXPECT_EQ(query.name_words, (std::vector<std::string>{"nightly", "run"}));
  EXPECT_EQ(query.projects, std::vector<std::string>{"p1"});
  EXPECT_EQ(query.user_metadata.at("a"), "b");
  EXPECT_EQ(query.limit, 2U);
  ASSERT_EQ(query.states.size(), 2U);
  EXPECT_EQ(query.states[1].reasons, std::vector<control::FinishReason>{control::FinishReason::kErrored});
  EXPECT_EQ(query.after->first, "2026-01-31T12:00:00.000000+00:00");
}

TEST_F(Rest, ASearchAmongOthersFindsNothing) {
  const std::string nothing = R"({"sessions":[],"next_cursor":null})";
  EXPECT_EQ(post("sessions/search", R"({"owner":{"type":"user","owner_urns":["bob"]}})").body, nothing);
  EXPECT_EQ(post("sessions/search", R"({"owner":{"type":"accessible"}})", {{"X-API-Key", "tml-bob"}}).body, nothing);
}

TEST_F(Rest, AWrongSearchIsRefusedByName) {
  for (const auto& [body, word] : std::vector<std::pair<std::string, std::string>>{
           {R"({"limit":0})", "limit"},
           {R"({"limit":201})", "limit"},
           {R"({"display_name":""})", "display_name"},
           {R"({"display_name":"a b c d e f g h i"})", "display_name"},
           {R"({"statuses":[]})", "statuses"},
           {R"({"statuses":[{"type":"late"}]})", "statuses[0].type"},
           {R"({"statuses":[{"type":"client_finished","reasons":["bored"]}]})", "reasons"},
           {R"({"owner":{"type":"all"}})", "owner.type"},
           {R"({"owner":{"type":"user","owner_urns":[]}})", "owner_urns"},
           {R"({"cursor":{"last_created_at":"now","last_session_id":"s"}})", "last_created_at"}}) {
    expect_refusal(post("sessions/search", body), 422, word);
  }
  expect_refusal(post("sessions/search", R"({"display_nam":"x"})"), 400, "display_nam");
}

TEST_F(Rest, AKeyIsItsUsersAndCannotBeDeleted) {
  EXPECT_EQ(get("auth/apikey/me").body,
            R"({"key_id":1,"name":"alice","note":"","details":{"org_details":{"name":"local"},)"
            R"("user_details":{"email":""}}})");
  expect_refusal(call("DELETE", "/api/v1/auth/apikey/me"), 403, "authorized_users");
  EXPECT_EQ(get("auth/apikey/me", {{"X-API-Key", "tml-eve"}}).status, 403);
}

TEST_F(Rest, AuthTokensAreRefused) {
  expect_refusal(post("auth/token", "{}"), 400, "API key");
}

}  // namespace
}  // namespace tuft::api
