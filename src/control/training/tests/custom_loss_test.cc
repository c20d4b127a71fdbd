// Tests of custom losses: their creation, their way into passes, their limits and their end.
#include <gmock/gmock.h>

#include "control/tests/plane.h"
#include "loss_graph/testing/graph_builder.h"

namespace tuft::control {
namespace {

using loss_graph::testing::GraphBuilder;
using loss_graph::testing::Json;
using loss_graph::testing::ref;
using ::testing::HasSubstr;

class CustomLossPlane : public PlaneTest {
 protected:
  static CreateCustomLoss request(const SessionId& session, int64_t seq, const std::string& function = ".sum") {
    const GraphBuilder graph = GraphBuilder().call("loss", function, Json::array({ref("logprobs")})).output("loss");
    return {session, seq, graph.inputs(), graph.text()};
  }
  RequestId create(const UserId& user, const CreateCustomLoss& request) {
    const auto submitted = plane().create_custom_loss(user, request, no_trace);
    EXPECT_TRUE(submitted.ok()) << submitted.error().message;
    return submitted.ok() ? submitted->request : RequestId();
  }
  RequestId pass(const UserId& user, const RunId& run, int32_t seq, const std::string& loss_id) {
    tinker_public::ForwardBackwardRequest request;
    request.set_model_id(run.str());
    request.set_seq_id(seq);
    request.set_loss_fn("custom");
    if (!loss_id.empty()) (*request.mutable_loss_fn_config_v2())["loss_id"].set_text(loss_id);
    const auto submitted = plane().forward_backward(user, std::move(request), no_trace);
    EXPECT_TRUE(submitted.ok()) << submitted.error().message;
    return submitted.ok() ? submitted->request : RequestId();
  }
};

TEST_F(CustomLossPlane, TheWorkerGetsTheLossWithThePass) {
  const auto [s, run] = boot_with_session_and_run();
  const std::string id = value<CreateCustomLossResult>(alice, create(alice, request(s, 3))).loss_id;
  EXPECT_EQ(id, s.str() + ":loss:3");
  value<ProtobufResult>(alice, pass(alice, run, 1, id));
  const worker::v1::ForwardBackwardRequest sent = worker().last_pass();
  ASSERT_TRUE(sent.has_custom_loss());
  EXPECT_EQ(sent.custom_loss().graph(), request(s, 3).graph);
  ASSERT_EQ(sent.custom_loss().inputs_size(), 1);
  EXPECT_EQ(sent.custom_loss().inputs(0).name(), "logprobs");
  EXPECT_EQ(sent.custom_loss().inputs(0).rank(), 1);
  EXPECT_TRUE(sent.request().loss_fn_config_v2().empty());
  value<ProtobufResult>(alice, forward_backward(run, alice, 2));
  EXPECT_FALSE(worker().last_pass().has_custom_loss());
}

TEST_F(CustomLossPlane, ARepeatedCreationGetsTheFirstFuture) {
  const SessionId s = boot_with_session();
  const RequestId first = create(alice, request(s, 0));
  EXPECT_EQ(create(alice, request(s, 0)), first);
  EXPECT_NE(create(alice, request(s, 1)), first);
}

TEST_F(CustomLossPlane, WhatIsWrongWithAGraphIsTheErrorOfItsFuture) {
  const SessionId s = boot_with_session();
  const Error error = failure(alice, create(alice, request(s, 0, "torch.prod")));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.reason, "custom_loss_operation");
  EXPECT_THAT(error.message, HasSubstr("node 'loss' (torch.prod)"));
  EXPECT_EQ(plane().create_custom_loss(alice, request(SessionId("nobodys"), 0), no_trace).error().code,
            ErrorCode::kNotFound);
}

TEST_F(CustomLossPlane, ALossBelongsToItsSessionAndUser) {
  const auto [s, run] = boot_with_session_and_run();
  const std::string id = value<CreateCustomLossResult>(alice, create(alice, request(s, 0))).loss_id;
  const RunId other = create_model(session(alice), alice);
  const RunId bobs = create_model(session(bob), bob);
  EXPECT_EQ(failure(alice, pass(alice, other, 1, id)).reason, "custom_loss_not_found");
  EXPECT_EQ(failure(bob, pass(bob, bobs, 1, id)).reason, "custom_loss_not_found");
  EXPECT_EQ(plane().create_custom_loss(bob, request(s, 1), no_trace).error().code, ErrorCode::kNotFound);
  const Error none = failure(alice, pass(alice, run, 1, ""));
  EXPECT_EQ(none.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(none.message, HasSubstr("needs the text loss_id"));
  // A refused pass has used its number up.
  value<ProtobufResult>(alice, pass(alice, run, 2, id));
}

TEST_F(CustomLossPlane, LossesOfAUserAreLimitedUntilTheirSessionEnds) {
  config().limits.custom_losses_per_user_max = 2;
  const SessionId s = boot_with_session();
  create(alice, request(s, 0));
  create(alice, request(s, 1));
  const auto refused = plane().create_custom_loss(alice, request(s, 2), no_trace);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "custom_losses_per_user_max");
  const SessionId bobs = session(bob);
  create(bob, request(bobs, 0));
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  advance(kSecond);
  const SessionId next = session(alice);
  create(alice, request(next, 0));
}

TEST_F(CustomLossPlane, BytesOfAUserAreLimited) {
  config().limits.custom_loss_bytes_per_user_max = 2000;
  const SessionId s = boot_with_session();
  create(alice, request(s, 0));
  EXPECT_EQ(plane().create_custom_loss(alice, request(s, 1), no_trace).error().reason,
            "custom_loss_bytes_per_user_max");
}

TEST_F(CustomLossPlane, WithPersistenceLossesSurviveARestart) {
  keep_state();
  const auto [s, run] = boot_with_session_and_run();
  const RequestId created = create(alice, request(s, 0));
  const std::string id = value<CreateCustomLossResult>(alice, created).loss_id;
  failure(alice, create(alice, request(s, 1, "torch.prod")));
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(value<CreateCustomLossResult>(alice, created).loss_id, id);
  value<ProtobufResult>(alice, pass(alice, run, 1, id));
  EXPECT_EQ(worker().last_pass().custom_loss().graph(), request(s, 0).graph);
  EXPECT_EQ(worker().last_pass().custom_loss().inputs_size(), 1);
  EXPECT_EQ(failure(alice, pass(alice, run, 2, s.str() + ":loss:1")).reason, "custom_loss_not_found");
}

TEST_F(CustomLossPlane, RestoredLossesCountUntilTheirSessionEnds) {
  keep_state();
  const SessionId s = boot_with_session();
  value<CreateCustomLossResult>(alice, create(alice, request(s, 0)));
  ASSERT_TRUE(durable().ok());
  config().limits.custom_losses_per_user_max = 1;
  crash_and_boot();
  const auto refused = plane().create_custom_loss(alice, request(s, 1), no_trace);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "custom_losses_per_user_max");
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  advance(kSecond);
  ASSERT_TRUE(durable().ok());
  for (const auto& [key, text] : contents().copy()) EXPECT_EQ(key.find("::custom_loss::"), std::string::npos) << key;
  const SessionId next = session(alice);
  value<CreateCustomLossResult>(alice, create(alice, request(next, 0)));
}

TEST_F(CustomLossPlane, WithoutPersistenceALostLossHasAClearError) {
  const auto [s, run] = boot_with_session_and_run();
  const Error error = failure(alice, pass(alice, run, 1, s.str() + ":loss:0"));
  EXPECT_EQ(error.reason, "custom_loss_not_found");
  EXPECT_THAT(error.message, HasSubstr("create it again with create_custom_loss of a new ServiceClient"));
}

}  // namespace
}  // namespace tuft::control
