#include "worker/bucket_checkpoints.h"

#include <chrono>
#include <future>
#include <thread>

#include <gmock/gmock.h>

#include "base/testing/temp_dir.h"
#include "bucket/testing/fake_s3.h"
#include "engine/tests/fake_engine.h"
#include "worker/tests/service_fixture.h"

namespace tuft::worker {
namespace {

using bucket::Fault;
using ::testing::HasSubstr;
using ::testing::Not;

class BucketCheckpointsTest : public ServiceTest {
 protected:
  void SetUp() override { use(1 << 30); }
  void TearDown() override {
    stop();
    checkpoints_.reset();
  }

  // Starts the worker anew with room for copies of so many bytes.
  void use(int64_t copy_bytes_max) {
    stop();
    bucket::Settings settings = server_s3_.settings();
    settings.timeout = timeout_;
    auto made =
        BucketCheckpoints::create(std::move(bucket::open_s3(settings)).value(), scratch_.path(), copy_bytes_max);
    ASSERT_TRUE(made.ok()) << made.error().message;
    checkpoints_ = std::move(made).value();
    EngineLoopOptions options;
    options.bucket = checkpoints_.get();
    start(options);
  }

  // Makes an adapter with a step behind it.
  void make_adapter(const std::string& id) {
    ASSERT_TRUE(create_adapter(id).status.ok());
    on_engine([&] {
      auto state = engine_.export_state(training_adapter(id), false);
      ASSERT_TRUE(state.ok());
      state->has_optimizer = true;
      state->moments = {1, state->tensors, state->tensors};
      ASSERT_TRUE(engine_.import_state(training_adapter(id), *state).ok());
    });
  }
  Answer save(const std::string& adapter, const std::string& place, bool optimizer = true) {
    v1::SaveStateRequest request;
    request.set_adapter_id(adapter);
    request.set_directory(place);
    request.set_with_optimizer(optimizer);
    request.set_base_model("m");
    v1::SaveStateResponse response;
    return call(&v1::ModelActor::Stub::SaveState, request, &response);
  }
  Answer load(const std::string& adapter, const std::string& place, bool optimizer = true) {
    v1::LoadStateRequest request;
    request.set_adapter_id(adapter);
    request.set_directory(place);
    request.set_with_optimizer(optimizer);
    v1::LoadStateResponse response;
    return call(&v1::ModelActor::Stub::LoadState, request, &response);
  }
  size_t copies() {
    size_t count = 0;
    for (const auto& own : std::filesystem::directory_iterator(scratch_.path())) {
      for (const auto& copy : std::filesystem::directory_iterator(own)) count += copy.is_directory() ? 1 : 0;
    }
    return count;
  }

  Nanos timeout_ = kSecond;
  bucket::FakeS3 server_s3_;
  TempDir scratch_;
  std::unique_ptr<BucketCheckpoints> checkpoints_;
};

TEST_F(BucketCheckpointsTest, ASaveIsInTheBucketAndAnotherWorkerLoadsIt) {
  make_adapter("a");
  const Answer saved = save("a", "files/r/weights/1");
  ASSERT_TRUE(saved.status.ok()) << saved.status.error_message();
  for (const char* file :
       {"adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors", "checkpoint_complete"}) {
    EXPECT_TRUE(server_s3_.objects().contains(std::string("p/files/r/weights/1/") + file)) << file;
  }
  use(1 << 30);
  make_adapter("b");
  const Answer loaded = load("b", "files/r/weights/1");
  EXPECT_TRUE(loaded.status.ok()) << loaded.status.error_message();
}

TEST_F(BucketCheckpointsTest, ACopyOnTheDiskNeedsNoBucket) {
  make_adapter("a");
  ASSERT_TRUE(save("a", "files/r/weights/1").status.ok());
  const int before = server_s3_.requests();
  EXPECT_TRUE(load("a", "files/r/weights/1").status.ok());
  EXPECT_EQ(server_s3_.requests(), before);
  EXPECT_EQ(copies(), 1U);
}

TEST_F(BucketCheckpointsTest, TheOptimizerIsFetchedWhenItIsNeeded) {
  make_adapter("a");
  ASSERT_TRUE(save("a", "files/r/weights/1").status.ok());
  use(1 << 30);
  make_adapter("b");
  server_s3_.fail({.status = 403, .code = "AccessDenied", .times = 1'000, .key = "optimizer"});
  EXPECT_TRUE(load("b", "files/r/weights/1", false).status.ok());
  EXPECT_EQ(load("b", "files/r/weights/1", true).reason, "bucket_access");
  server_s3_.heal();
  EXPECT_TRUE(load("b", "files/r/weights/1", true).status.ok());
}

TEST_F(BucketCheckpointsTest, CopiesStayWithinTheLimit) {
  make_adapter("a");
  ASSERT_TRUE(save("a", "files/r/weights/1").status.ok());
  int64_t bytes = 0;
  for (const auto& [key, object] : server_s3_.objects()) bytes += static_cast<int64_t>(object.size());
  use(2 * bytes);
  make_adapter("b");
  for (const char* place : {"files/r/weights/2", "files/r/weights/3", "files/r/weights/4"}) {
    ASSERT_TRUE(save("b", place).status.ok());
    EXPECT_LE(copies(), 2U);
  }
  const int before = server_s3_.requests();
  EXPECT_TRUE(load("b", "files/r/weights/3").status.ok());
  EXPECT_EQ(server_s3_.requests(), before);
  EXPECT_TRUE(load("b", "files/r/weights/2").status.ok()) << "it is fetched again";
  EXPECT_GT(server_s3_.requests(), before);
  const int after = server_s3_.requests();
  EXPECT_TRUE(load("b", "files/r/weights/3").status.ok()) << "it was used more lately than 4";
  EXPECT_EQ(server_s3_.requests(), after);
  use(0);
  make_adapter("c");
  EXPECT_TRUE(load("c", "files/r/weights/2").status.ok());
  EXPECT_EQ(copies(), 0U);
}

TEST_F(BucketCheckpointsTest, FailuresSayWhatIsWrong) {
  make_adapter("a");
  EXPECT_EQ(load("a", "files/r/weights/none").reason, "object_missing");
  server_s3_.fail({.times = 1'000});
  EXPECT_EQ(save("a", "files/r/weights/1").reason, "bucket_unavailable");
  server_s3_.heal();
  ASSERT_TRUE(save("a", "files/r/weights/1").status.ok());
  use(0);
  make_adapter("b");
  server_s3_.fail({.kind = Fault::Kind::kCorrupt, .method = "GET", .key = "adapter_model"});
  EXPECT_EQ(load("b", "files/r/weights/1").reason, "object_damaged");
  server_s3_.erase("p/files/r/weights/1/adapter_model.safetensors");
  const Answer torn = load("b", "files/r/weights/1");
  EXPECT_FALSE(torn.status.ok());
  EXPECT_THAT(torn.status.error_message(), Not(HasSubstr(scratch_.path().string())));
  EXPECT_EQ(copies(), 0U);
}

TEST_F(BucketCheckpointsTest, ForeignNamesAreNotWritten) {
  make_adapter("a");
  const auto other = std::move(bucket::open_s3(server_s3_.settings())).value();
  ASSERT_TRUE(other->put("files/r/weights/1/../../evil", "x").ok());
  EXPECT_EQ(load("a", "files/r/weights/1").reason, "checkpoint_foreign");
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(other->put("files/r/weights/2/f" + std::to_string(i), "x").ok());
  EXPECT_EQ(load("a", "files/r/weights/2").reason, "checkpoint_foreign");
}

TEST_F(BucketCheckpointsTest, AWorkerThatStopsDoesNotWaitForTheBucket) {
  timeout_ = 600 * kSecond;
  use(1 << 30);
  make_adapter("a");
  server_s3_.fail({.kind = Fault::Kind::kHang, .times = 1'000});
  const int before = server_s3_.requests();
  auto answer = std::async(std::launch::async, [this] { return save("a", "files/r/weights/1"); });
  while (server_s3_.requests() == before && answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    std::this_thread::yield();
  }
  loop_->stop();
  EXPECT_FALSE(answer.get().status.ok());
}

TEST_F(BucketCheckpointsTest, CopiesOfKilledProcessesAreRemovedAndThoseOfOthersStay) {
  const auto left = scratch_.path() / "tuft-checkpoints-of-a-killed-one";
  std::filesystem::create_directories(left / "copy");
  auto second =
      BucketCheckpoints::create(std::move(bucket::open_s3(server_s3_.settings())).value(), scratch_.path(), 1);
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(std::filesystem::exists(left));
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
    EXPECT_EQ(entry.status().permissions(), std::filesystem::perms::owner_all) << "nobody else reads weights there";
  }
  size_t directories = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch_.path())) ++directories;
  EXPECT_EQ(directories, 2U);
}

}  // namespace
}  // namespace tuft::worker
