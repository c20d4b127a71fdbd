// Tests of copies of checkpoints.
#include <future>
#include <memory>
#include <string>

#include "control/accounts/api_keys.h"
#include "control/checkpoints/tests/checkpoint_actions_fixture.h"

namespace tuft::control {
namespace {

class Copies : public CheckpointActionsTest {
 protected:
  Result<std::string> copy(const UserId& user, CopyWeights request) {
    auto answer = std::make_shared<std::promise<Result<std::string>>>();
    auto future = answer->get_future();
    actions().copy(user, request, no_trace, [answer](Result<std::string> path) { answer->set_value(std::move(path)); });
    return future.get();
  }
  static CopyWeights of(const std::string& path, const std::string& key = "") {
    CopyWeights request;
    request.source_path = path;
    request.idempotency_key = key;
    return request;
  }
  // Returns the weights in a checkpoint, read by a new run of the user.
  int weights_in(const UserId& user, const std::string& path) {
    const RunId run = create_model(user);
    value<LoadWeightsResult>(user, load(run, user, 1, path));
    return worker().weights_of(run.str());
  }
};

TEST_F(Copies, ACopyIsTheUsersOwnAndOutlivesItsSource) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  const std::string source = saved(run, 2, "a");
  CopyWeights request = of(source);
  request.project_id = "p";
  const auto made = copy(alice, request);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_NE(*made, source);
  EXPECT_TRUE(made->ends_with(":train:0/weights/a")) << *made;
  ASSERT_TRUE(remove(alice, source).ok());
  EXPECT_EQ(weights_in(alice, *made), 1);
  EXPECT_FALSE(visible(bob, *made));
  const auto listed = plane().catalog().training_run(alice, path_of(*made).run, Scope::kOwned);
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->last_checkpoint->tinker_path, *made);
  EXPECT_EQ(plane().catalog().stored(alice, "p").at(0).checkpoints, 1);
  EXPECT_TRUE(remove(alice, *made).ok());
}

TEST_F(Copies, ARepeatedKeyGivesTheFirstCopyAlsoAfterARestart) {
  keep_state();
  const RunId run = boot_with_run();
  const std::string a = saved(run, 1, "a");
  const std::string b = saved(run, 2, "b");
  const std::string first = *copy(alice, of(a, "key"));
  EXPECT_EQ(*copy(alice, of(a, "key")), first);
  EXPECT_NE(*copy(alice, of(b, "key")), first);
  EXPECT_NE(*copy(alice, of(a, "other")), first);
  EXPECT_NE(*copy(alice, of(a)), first);
  ASSERT_TRUE(set_public(alice, a, true).ok());
  EXPECT_NE(*copy(bob, of(a, "key")), first);
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(*copy(alice, of(a, "key")), first);
}

TEST_F(Copies, OnlyReadableSourcesAreCopied) {
  config().authorized_users = {{"key-of-alice-0123", "alice"}, {"key-of-bob-0123456", "bob"}};
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "a");
  const std::string unknown = "tinker://" + run.str() + "/weights/b";
  const auto text = [](Error error, const std::string& name) {
    return error.message.replace(error.message.find(name), name.size(), "PATH");
  };
  const Error hidden = copy(bob, of(path)).error();
  EXPECT_EQ(hidden.code, ErrorCode::kNotFound);
  EXPECT_EQ(text(hidden, path), text(copy(bob, of(unknown)).error(), unknown));
  CopyWeights with_token = of(path);
  with_token.access_token = "nonsense";
  EXPECT_EQ(copy(bob, with_token).error().message, hidden.message);
  with_token.access_token = "key-of-alice-0123";
  EXPECT_TRUE(copy(bob, with_token).ok());
  ASSERT_TRUE(set_public(alice, path, true).ok());
  EXPECT_TRUE(copy(bob, of(path)).ok());
  EXPECT_EQ(copy(bob, of("tinker://x")).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Copies, TheOwnersNotesStayWithTheOwner) {
  boot();
  CreateModel model_request = create_request(session(alice));
  model_request.user_metadata = {{"renderer_name", "r"}};
  const RunId run = value<CreateModelResult>(alice, plane().create_model(alice, model_request, no_trace)->request).run;
  const SaveWeights request{run, 1, "a", std::nullopt, false, {{"note", "secret"}}};
  const std::string path =
      value<SaveWeightsResult>(alice, plane().save_weights(alice, request, no_trace)->request).path;
  ASSERT_TRUE(set_public(alice, path, true).ok());
  const auto seen = plane().catalog().training_run(bob, run, Scope::kAccessible);
  EXPECT_TRUE(seen->last_checkpoint->user_metadata.empty());
  const auto notes = [&](const UserId& user) {
    const std::string made = *copy(user, of(path));
    const auto view = plane().catalog().training_run(user, path_of(made).run, Scope::kOwned);
    return view->user_metadata.size() + view->last_checkpoint->user_metadata.size();
  };
  EXPECT_EQ(notes(alice), 2U);
  EXPECT_EQ(notes(bob), 0U);
}

// A request of 100 bytes leaves a directory, links and memory for good.
TEST_F(Copies, TheNumberOfAUsersCheckpointsIsLimited) {
  config().limits.checkpoints_per_user_max = 3;
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "a");
  const std::string second = *copy(alice, of(path, "key"));
  ASSERT_TRUE(copy(alice, of(path)).ok());
  const Error over = copy(alice, of(path)).error();
  EXPECT_EQ(over.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(over.reason, "checkpoints_per_user_max");
  EXPECT_EQ(*copy(alice, of(path, "key")), second) << "a repetition makes none";
  EXPECT_EQ(failure(alice, save(run, alice, 2, "b")).reason, "checkpoints_per_user_max");
  value<SaveWeightsResult>(alice, save(run, alice, 3, "a", true));
  ASSERT_TRUE(remove(alice, second).ok());
  EXPECT_TRUE(copy(alice, of(path)).ok());
}

TEST_F(Copies, MetadataCountsAsFurtherCheckpoints) {
  config().limits.checkpoints_per_user_max = 4;
  const RunId run = boot_with_run();
  const SaveWeights request{.run = run,
                            .seq_id = 1,
                            .name = "a",
                            .ttl_seconds = {},
                            .overwrite = false,
                            .user_metadata = {{"notes", std::string(4096, 'n')}}};
  const auto submitted = plane().save_weights(alice, request, no_trace);
  const std::string path = value<SaveWeightsResult>(alice, submitted->request).path;
  ASSERT_TRUE(copy(alice, of(path)).ok());
  EXPECT_EQ(copy(alice, of(path)).error().reason, "checkpoints_per_user_max");
}

TEST_F(Copies, TheCopierIsChargedAndTheExpiryIsNew) {
  config().limits.checkpoint_bytes_per_user_max = 250;
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "a");  // 100 bytes
  ASSERT_TRUE(set_public(alice, path, true).ok());
  ASSERT_TRUE(set_ttl(alice, path, 10).ok());
  CopyWeights short_one = of(path);
  short_one.ttl_seconds = 30;
  const std::string kept = *copy(bob, of(path));
  const std::string expiring = *copy(bob, short_one);
  const Error over = copy(bob, of(path)).error();
  EXPECT_EQ(over.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(over.reason, "checkpoint_bytes_per_user_max");
  EXPECT_TRUE(copy(alice, of(path)).ok()) << "bob's copies do not count for alice";
  let_pass(20 * kSecond);
  let_pass();
  EXPECT_FALSE(visible(alice, path));
  EXPECT_TRUE(visible(bob, expiring));
  let_pass(20 * kSecond);
  let_pass();
  EXPECT_FALSE(visible(bob, expiring));
  EXPECT_TRUE(visible(bob, kept));
}

}  // namespace
}  // namespace tuft::control
