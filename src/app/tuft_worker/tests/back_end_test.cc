#include "app/tuft_worker/back_end.h"

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/init_model.h"
#ifdef TUFT_TORCH
#include "engine/torch/torch_engine.h"
#endif

namespace tuft::app {
namespace {

class BackEndTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine::InitModelOptions tiny;
    tiny.hidden_size = 16;
    tiny.intermediate_size = 32;
    tiny.layers = 1;
    tiny.heads = tiny.kv_heads = 1;
    tiny.head_dim = 16;
    ASSERT_TRUE(engine::init_model(directory_ / "model", tiny).ok());
    flags_.model_path = directory_ / "model";
    flags_.model_name = "tiny";
    flags_.threads = 1;
  }
  Result<std::unique_ptr<engine::Engine>> make() {
    return make_engine(flags_, [](const engine::ModelSpec&, const DeviceMemory& memory) -> Result<int64_t> {
      EXPECT_EQ(memory.kv_bytes_per_token, 2 * 4 * 16);
      return 100 * 64 * memory.kv_bytes_per_token;
    });
  }

  TempDir directory_;
  WorkerFlags flags_;
};

TEST_F(BackEndTest, NativeIsAlwaysAvailable) {
  const auto engine = make();
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_EQ((*engine)->decoding().kv_usage().limit, 100 * 64 * 2 * 4 * 16);
}

TEST_F(BackEndTest, NativeOnAGpuThenTheErrorNamesTheRemedy) {
  flags_.device = "cuda:0";
  const auto engine = make();
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().reason, "device");
  EXPECT_NE(engine.error().message.find("backend: torch"), std::string::npos) << engine.error().message;
}

#ifdef TUFT_TORCH
TEST_F(BackEndTest, TorchOnTheCpuIsAvailableIfBuiltIn) {
  flags_.backend = "torch";
  const auto engine = make();
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_EQ((*engine)->decoding().kv_usage().limit, 100 * 64 * 2 * 4 * 16);
  flags_.device = "cuda:99";
  EXPECT_EQ(make().error().reason, "device");
}

// They would cost a CPU the padding, and gain nothing.
TEST_F(BackEndTest, CudaGraphsAreOnButNotOnACpu) {
  EXPECT_TRUE(flags_.cuda_graphs);
  flags_.backend = "torch";
  const auto engine = make();
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  engine::DecodeEngine& decoding = (*engine)->decoding();
  const std::vector<int32_t> token = {1};
  const engine::Feed feed{decoding.open(std::nullopt, 0).value(), token, 1};
  ASSERT_TRUE(decoding.step({&feed, 1}, [](auto) {}).ok());
  EXPECT_EQ(engine::torch_captured_steps(**engine), 0);
}
#else
TEST_F(BackEndTest, TorchNotBuiltInThenTheErrorNamesTheRemedy) {
  flags_.backend = "torch";
  const auto engine = make();
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().reason, "no_torch");
  EXPECT_NE(engine.error().message.find("cmake --preset torch"), std::string::npos) << engine.error().message;
}
#endif

}  // namespace
}  // namespace tuft::app
