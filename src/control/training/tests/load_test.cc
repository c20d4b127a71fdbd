// Tests of load_weights that creates its model from a checkpoint.
#include <fstream>

#include "control/accounts/access_tokens.h"
#include "control/tests/plane.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::control {
namespace {

class CreateByLoad : public PlaneTest {
 protected:
  Result<Submitted> submit(const UserId& user, const SessionId& session, int64_t seq, const std::string& path,
                           bool optimizer = false, const std::string& base_model = "") {
    LoadWeights request;
    request.path = path;
    request.optimizer = optimizer;
    request.create = NewModel{session, seq, base_model, {{"k", "v"}}};
    return plane().load_weights(user, request, no_trace);
  }
  std::string checkpoint(int rank = 4, bool train_mlp = false) {
    CreateModel request = create_request(session(alice), 0, rank);
    request.lora.train_mlp = train_mlp;
    const RunId run = value<CreateModelResult>(alice, plane().create_model(alice, request, no_trace)->request).run;
    optim_step(run, alice, 1);
    return value<SaveWeightsResult>(alice, save(run, alice, 2, "x")).path;
  }
};

TEST_F(CreateByLoad, TheModelHasTheCheckpointsWeightsAndShape) {
  boot();
  const std::string path = checkpoint();
  const SessionId s = session(alice);
  const auto submitted = submit(alice, s, 3, path, true);
  ASSERT_TRUE(submitted.ok()) << submitted.error().message;
  const RunId id(s.str() + ":train:3");
  EXPECT_EQ(submitted->run, id);
  const auto result = value<LoadWeightsResult>(alice, submitted->request);
  EXPECT_EQ(result.run, id);
  EXPECT_EQ(result.path, path);
  EXPECT_EQ(worker().weights_of(id.str()), 1);
  EXPECT_EQ(worker().last_create().spec().rank(), 4);
  EXPECT_FALSE(worker().last_create().spec().train_mlp());
  EXPECT_EQ(worker().calls_of("load_state").back(), "load_state " + id.str() + " +optimizer");
  optim_step(id, alice, 1);  // it counted as 0
  value<SaveWeightsResult>(alice, save(id, alice, 2, "y"));
}

TEST_F(CreateByLoad, ARepeatedRequestGetsTheFirstFuture) {
  boot();
  const std::string path = checkpoint();
  const SessionId s = session(alice);
  const auto first = submit(alice, s, 0, path);
  EXPECT_EQ(submit(alice, s, 0, path)->request, first->request);
  value<LoadWeightsResult>(alice, first->request);
  EXPECT_EQ(submit(alice, s, 0, path)->request, first->request);
  EXPECT_EQ(worker().calls_of("create_adapter").size(), 2U);
  EXPECT_EQ(submit(alice, s, 1, path)->run, RunId(s.str() + ":train:1"));
}

TEST_F(CreateByLoad, InvalidRequestsAreRefused) {
  boot();
  const std::string path = checkpoint();
  const SessionId s = session(alice);
  EXPECT_EQ(submit(alice, s, 0, "tinker://none/weights/x").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(submit(alice, s, 0, "x").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(submit(bob, session(bob), 0, path).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(submit(bob, s, 0, path).error().code, ErrorCode::kNotFound);
  const auto other = submit(alice, s, 0, path, false, "org/other");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find(model), std::string::npos);
  EXPECT_NE(other.error().message.find("org/other"), std::string::npos);
  EXPECT_TRUE(submit(alice, s, 0, path, false, model).ok());
}

TEST_F(CreateByLoad, AFailedLoadRemovesTheModel) {
  config().limits.runs_per_user_max = 2;
  boot();
  const std::string path = checkpoint();
  const SessionId s = session(alice);
  worker().fail_next("load_state", data_loss("adapter_model.safetensors of the checkpoint is torn"));
  const Error error = failure(alice, submit(alice, s, 0, path)->request);
  EXPECT_NE(error.message.find("torn"), std::string::npos);
  EXPECT_EQ(worker().adapters(), 1U);
  EXPECT_FALSE(plane().get_info(alice, RunId(s.str() + ":train:0")).ok());
  value<LoadWeightsResult>(alice, submit(alice, s, 1, path)->request);  // the failed model does not count
}

TEST_F(CreateByLoad, ItIsRestoredWithTheServer) {
  keep_state();
  boot();
  const std::string path = checkpoint();
  const SessionId s = session(alice);
  const auto submitted = submit(alice, s, 0, path, true);
  value<LoadWeightsResult>(alice, submitted->request);
  boot();
  EXPECT_EQ(worker().weights_of(s.str() + ":train:0"), 1);
  EXPECT_EQ(submit(alice, s, 0, path, true)->request, submitted->request);
}

TEST_F(CreateByLoad, AnAccessTokenGivesAccessToItsUsersCheckpoints) {
  boot();
  const std::string path = checkpoint();
  const SessionId s = session(bob);
  LoadWeights request;
  request.path = path;
  request.create = NewModel{s, 0, "", {}};
  EXPECT_FALSE(plane().load_weights(bob, request, no_trace).ok());
  request.token_user = alice;
  value<LoadWeightsResult>(bob, plane().load_weights(bob, request, no_trace)->request);
}

TEST_F(CreateByLoad, TokensCannotBeTriedWithoutLimit) {
  config().authorized_users = {{"tml-of-alice", "alice"}};
  boot();
  const std::string path = checkpoint();
  LoadWeights request;
  request.path = path;
  request.create = NewModel{session(bob), 0, "", {}};
  const auto load_with = [&](const std::string& token) {
    request.access_token = token;
    return plane().load_weights(bob, request, no_trace);
  };
  telemetry::testing::RecordedMetrics metrics;
  for (int i = 0; i < AccessTokens::kUnknownPerMinuteMax; ++i) {
    EXPECT_EQ(load_with("tml-guess-" + std::to_string(i)).error().reason, "checkpoint_not_found");
  }
  EXPECT_EQ(metrics.counter("tuft.auth.failures", {{"reason", "token"}}), AccessTokens::kUnknownPerMinuteMax);
  // From now on not even the right one is looked at.
  const auto refused = load_with("tml-of-alice");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().reason, "too_many_tokens");
  EXPECT_EQ(refused.error().message.find("tml-of-alice"), std::string::npos);
  // Other users are not affected, and a minute later neither is this one.
  LoadWeights own = request;
  own.create->session = session(alice);
  EXPECT_TRUE(plane().load_weights(alice, own, no_trace).ok());
  advance(61 * kSecond);
  value<LoadWeightsResult>(bob, load_with("tml-of-alice")->request);
}

}  // namespace
}  // namespace tuft::control
