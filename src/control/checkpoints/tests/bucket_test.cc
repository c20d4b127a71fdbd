// Tests of checkpoints in a bucket: the same behaviour as in a directory, and what a bucket adds.
#include <future>
#include <map>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "bucket/testing/fake_s3.h"
#include "control/checkpoints/bucket_storage.h"
#include "control/checkpoints/tests/checkpoint_actions_fixture.h"

namespace tuft::control {
namespace {

using bucket::Fault;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class BucketCheckpointsTest : public CheckpointActionsTest {
 protected:
  BucketCheckpointsTest() {
    bucket::Settings settings = server_.settings();
    settings.timeout = kSecond;  // of a bucket that is away
    keep_in_bucket(settings);
  }
  ~BucketCheckpointsTest() override { close(); }

  // The names of the objects without the prefix and "index/" or "files/".
  std::vector<std::string> objects(const std::string& part) {
    std::vector<std::string> names;
    for (const auto& [key, bytes] : server_.objects()) {
      if (key.starts_with("p/" + part)) names.push_back(key.substr(2 + part.size()));
    }
    return names;
  }
  std::string index_of(const std::string& path) {
    const CheckpointPath parsed = path_of(path);
    return "p/index/" + name_of(parsed) + ".json";
  }
  int loaded(const std::string& path, const UserId& user) {
    const RunId run = create_model(user);
    value<LoadWeightsResult>(user, load(run, user, 1, path, false));
    return worker().weights_of(run.str());
  }
  // Waits until the files of all that is gone are removed.
  void await_files_of(size_t checkpoints) {
    sweep_until([&] { return objects("files/").size() == checkpoints; });
  }

  bucket::FakeS3 server_;
};

TEST_F(BucketCheckpointsTest, ASaveIsFoundLoadedAndSurvivesARestart) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const std::string path = saved(run, 2, "one");
  EXPECT_THAT(objects("index/"), ElementsAre(run_folder(run) + "/weights/one.json"));
  ASSERT_EQ(objects("files/").size(), 1U);
  EXPECT_TRUE(names_in(config().checkpoint_dir).empty()) << "nothing is on the disk of the server";
  EXPECT_EQ(loaded(path, alice), 1);
  boot();
  EXPECT_TRUE(visible(alice, path));
  EXPECT_FALSE(visible(bob, path));
  EXPECT_EQ(loaded(path, alice), 1);
}

TEST_F(BucketCheckpointsTest, AReplacedCheckpointLosesItsFiles) {
  const RunId run = boot_with_run();
  saved(run, 1, "one");
  optim_step(run, alice, 2);
  const std::string path = saved(run, 3, "one", true);
  EXPECT_EQ(loaded(path, alice), 1);
  EXPECT_EQ(objects("index/").size(), 1U);
  await_files_of(1);
  boot();
  EXPECT_EQ(loaded(path, alice), 1);
}

TEST_F(BucketCheckpointsTest, ADeletedCheckpointIsGoneAlsoAfterARestart) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "one");
  const std::string kept = saved(run, 2, "two");
  ASSERT_TRUE(remove(alice, path).ok());
  EXPECT_FALSE(visible(alice, path));
  EXPECT_EQ(objects("index/").size(), 1U);
  boot();
  EXPECT_FALSE(visible(alice, path));
  EXPECT_TRUE(visible(alice, kept));
  await_files_of(1);
}

TEST_F(BucketCheckpointsTest, AnUnnamedSaveLeavesNothingWhenItsSamplerEnds) {
  const auto [s, run] = boot_with_session_and_run();
  const auto first = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 0));
  ASSERT_TRUE(first.sampler.has_value());
  sweep_until([&] { return objects("index/").size() == 1; });
  EXPECT_TRUE(plane().end_session(alice, s, {}).ok());
  sweep_until([&] { return server_.objects().empty(); });
}

// Its files are used until the name is another checkpoint's, and only they go then.
TEST_F(BucketCheckpointsTest, ANamedSaveOutlivesTheUnnamedOneThatHadItsName) {
  config().limits.unnamed_samplers_per_run_max = 1;
  const RunId run = boot_with_run();
  const std::string path = "tinker://" + run.str() + "/sampler_weights/ephemeral-0001";
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 0));
  sweep_until([&] { return visible(alice, path); });
  const RunId reader = create_model(alice);
  value<LoadWeightsResult>(alice, load(reader, alice, 1, path, false));
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 2, "", 1));
  ASSERT_FALSE(visible(alice, path));
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 3, "ephemeral-0001"));
  EXPECT_EQ(objects("files/").size(), 3U);
  value<UnloadModelResult>(alice, plane().unload_model(alice, reader, no_trace)->request);
  await_files_of(2);
  boot();
  EXPECT_TRUE(visible(alice, path));
}

TEST_F(BucketCheckpointsTest, WhatIsChangedSurvivesARestart) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "one");
  ASSERT_TRUE(set_public(alice, path, true).ok());
  boot();
  EXPECT_TRUE(visible(bob, path));
}

TEST_F(BucketCheckpointsTest, ACopyHasTheSameFilesUntilTheLastIsGone) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const std::string path = saved(run, 2, "one");
  ASSERT_TRUE(set_public(alice, path, true).ok());
  auto answer = std::make_shared<std::promise<Result<std::string>>>();
  auto future = answer->get_future();
  CopyWeights request;
  request.source_path = path;
  actions().copy(bob, request, no_trace, [answer](Result<std::string> made) { answer->set_value(std::move(made)); });
  const auto copy = future.get();
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(objects("files/").size(), 1U);
  EXPECT_EQ(objects("index/").size(), 2U);
  EXPECT_EQ(loaded(*copy, bob), 1);
  boot();  // counts the users of the files anew, and ends the run that was loaded
  ASSERT_TRUE(remove(alice, path).ok());
  let_pass();
  let_pass();
  EXPECT_EQ(objects("files/").size(), 2U) << "those of the copy, and those of let_pass()";
  ASSERT_TRUE(remove(bob, *copy).ok());
  await_files_of(1);  // of let_pass()
}

TEST_F(BucketCheckpointsTest, ASaveThatTheWorkerCannotEndLeavesNothing) {
  const RunId run = boot_with_run();
  server_.fail({.status = 507, .code = "XMinioStorageFull", .method = "PUT", .key = "files/"});
  const Error error = failure(alice, save(run, alice, 1, "one"));
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, HasSubstr("is full"));
  EXPECT_THAT(server_.objects(), IsEmpty());
  saved(run, 2, "one");
}

TEST_F(BucketCheckpointsTest, ACommitThatIsRefusedLeavesNothing) {
  const RunId run = boot_with_run();
  server_.fail({.status = 403, .code = "AccessDenied", .method = "PUT", .key = "index/"});
  const Error error = failure(alice, save(run, alice, 1, "one"));
  EXPECT_EQ(error.code, ErrorCode::kInternal);
  EXPECT_THAT(error.message, Not(HasSubstr("127.0.0.1")));
  EXPECT_THAT(server_.objects(), IsEmpty());
}

// The answer of the put was lost, so the save fails although the object is there.
TEST_F(BucketCheckpointsTest, ACommitWhoseAnswerIsLostIsTakenBack) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "one");
  const std::string before = server_.objects().at(index_of(path));
  optim_step(run, alice, 2);
  server_.fail({.kind = Fault::Kind::kResetAfterwards, .times = 1'000, .method = "PUT", .key = "index/"});
  const Error error = failure(alice, save(run, alice, 3, "one", true));
  EXPECT_EQ(error.code, ErrorCode::kUnavailable) << error.message;
  EXPECT_NE(server_.objects().at(index_of(path)), before);
  EXPECT_EQ(objects("files/").size(), 2U) << "the index may name them";
  server_.heal();
  sweep_until([&] { return server_.objects().at(index_of(path)) == before; });
  await_files_of(1);
  EXPECT_EQ(loaded(path, alice), 0);
  boot();
  EXPECT_EQ(loaded(path, alice), 0);
}

TEST_F(BucketCheckpointsTest, ADeletionWhoseAnswerIsLostIsTakenBack) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "one");
  server_.fail({.kind = Fault::Kind::kResetAfterwards, .times = 1'000, .method = "DELETE", .key = "index/"});
  EXPECT_EQ(remove(alice, path).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(visible(alice, path));
  EXPECT_THAT(objects("index/"), IsEmpty());
  server_.heal();
  sweep_until([&] { return objects("index/").size() == 1; });
  boot();
  EXPECT_TRUE(visible(alice, path));
}

TEST_F(BucketCheckpointsTest, TheNextStartRemovesWhatACrashLeft) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "one");
  const std::string left = "files/x_train_0/weights/00000000-0000-0000-0000-000000000000/weights";
  const auto other = std::move(bucket::open_s3(server_.settings())).value();
  ASSERT_TRUE(other->put(left, "7").ok());
  ASSERT_TRUE(other->put("files/notes.txt", "of the operator").ok());
  ASSERT_TRUE(other->put("files/a/b/c/d", "of the operator").ok());
  boot();
  sweep_until([&] { return !server_.objects().contains("p/" + left); });
  EXPECT_TRUE(server_.objects().contains("p/files/notes.txt")) << "only what is surely its own is removed";
  EXPECT_TRUE(server_.objects().contains("p/files/a/b/c/d"));
  EXPECT_EQ(loaded(path, alice), 0);
}

TEST_F(BucketCheckpointsTest, NoFilesAreRemovedWhileAPartOfTheIndexCannotBeRead) {
  const RunId run = boot_with_run();
  const std::string damaged = saved(run, 1, "damaged");
  const std::string kept = saved(run, 2, "kept");
  server_.tamper(index_of(damaged), "{");
  const std::vector<std::string> before = objects("files/");
  boot();
  EXPECT_FALSE(visible(alice, damaged));
  EXPECT_TRUE(visible(alice, kept));
  settle();
  for (const std::string& file : before) EXPECT_TRUE(server_.objects().contains("p/files/" + file));
}

TEST_F(BucketCheckpointsTest, AnIndexThatNamesOtherFilesIsNotFollowed) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "one");
  const auto other = std::move(bucket::open_s3(server_.settings())).value();
  std::string text = server_.objects().at(index_of(path));
  const size_t begin = text.find("files/");
  text.replace(begin, text.find('"', begin) - begin, "files/../../secret/weights/x");
  ASSERT_TRUE(other->put(index_of(path).substr(2), text).ok());
  boot();
  EXPECT_FALSE(visible(alice, path));
}

TEST_F(BucketCheckpointsTest, ACheckpointWhoseFilesAreGoneIsNotShown) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "one");
  server_.erase("p/files/" + objects("files/").front());
  boot();
  EXPECT_FALSE(visible(alice, path));
}

TEST_F(BucketCheckpointsTest, AStartWithoutABucketFails) {
  for (const Fault& fault : {Fault{.status = 403, .code = "AccessDenied"}, Fault{.times = 1'000}}) {
    server_.heal();
    server_.fail(fault);
    bucket::Settings settings = server_.settings();
    settings.timeout = kSecond;
    const auto opened =
        open_bucket_storage(std::move(bucket::open_s3(settings)).value(), config().checkpoint_dir, clock());
    EXPECT_FALSE(opened.ok());
  }
}

class BucketDownloads : public BucketCheckpointsTest {
 protected:
  std::string external(const RunId& run, std::optional<std::vector<std::string>> recipients = {}) {
    const SaveWeightsExternal request{run, ++seq_, "final-" + std::to_string(seq_), {}, {}, std::move(recipients)};
    return value<SaveWeightsExternalResult>(alice, plane().save_weights_external(alice, request, no_trace)->request)
        .path;
  }
  // Returns the content of a file, or the message of the error.
  std::string download(const std::string& path, size_t file) {
    const auto tickets = actions().file_tickets(alice, path_of(path));
    auto answer = std::make_shared<std::promise<Result<std::unique_ptr<Archive>>>>();
    auto future = answer->get_future();
    actions().open_archive(tickets->files[file].second,
                           [answer](auto opened) { answer->set_value(std::move(opened)); });
    const auto opened = future.get();
    if (!opened.ok()) return opened.error().message;
    std::string all;
    while (true) {
      auto piece = std::make_shared<std::promise<Result<std::string>>>();
      auto next = piece->get_future();
      (*opened)->read(5, [piece](Result<std::string> bytes) { piece->set_value(std::move(bytes)); });
      const auto bytes = next.get();
      if (!bytes.ok()) return bytes.error().message;
      if (bytes->empty()) return all;
      all += *bytes;
    }
  }

 private:
  int64_t seq_ = 0;
};

TEST_F(BucketDownloads, ComeFromTheBucketAndAreChecked) {
  const RunId run = boot_with_run();
  const std::string path = external(run);
  EXPECT_EQ(download(path, 0), "{}");
  EXPECT_EQ(download(path, 1), "weights 0");
  for (const auto& [key, bytes] : server_.objects()) {
    if (key.ends_with(".safetensors")) server_.tamper(key, "weights 9");
  }
  EXPECT_THAT(download(path, 1), HasSubstr("cannot read"));
}

TEST_F(BucketDownloads, AnEncryptedCheckpointLeavesNoPlainFile) {
  const RunId run = boot_with_run();
  const std::string path = external(run, std::vector<std::string>{kRecipient});
  for (const std::string& name : objects("files/")) {
    EXPECT_TRUE(name.ends_with(".age") || name.ends_with("/weights")) << name;
  }
  EXPECT_THAT(download(path, 0), HasSubstr("age-encryption.org/v1"));
  EXPECT_TRUE(names_in(config().checkpoint_dir).empty());
}

}  // namespace
}  // namespace tuft::control
