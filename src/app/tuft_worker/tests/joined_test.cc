// What a worker that joins knows of itself, and the flags that it gets.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/tuft_worker/launcher.h"
#include "app/tuft_worker/options.h"

namespace tuft::app {
namespace {

TEST(Launcher, ItsIdsAreAttributes) {
  ::setenv("K8S_POD_NAME", "tuft-0", 1);
  ::setenv("SLURM_JOB_ID", "", 1);
  EXPECT_THAT(launcher_attributes(), ::testing::ElementsAre(::testing::Pair("k8s.pod.name", "tuft-0")));
  ::unsetenv("K8S_POD_NAME");
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_THAT(launcher_attributes(), ::testing::IsEmpty());
}

TEST(MergedFlags, TheWorkersOwnWin) {
  const auto flags = merge_flags({"--threads", "8", "--max-model-len", "64"},
                                 {"--join", "host:1", "--model-path", "/models/m", "--threads", "2"});
  ASSERT_TRUE(flags.ok()) << flags.error().message;
  EXPECT_EQ(flags->threads, 2);
  EXPECT_EQ(flags->max_model_len, 64);
  EXPECT_EQ(flags->model_path, "/models/m");
  EXPECT_EQ(flags->model_name, "m");
}

TEST(MergedFlags, AFlagOfANewerServerIsNamed) {
  const auto flags = merge_flags({"--of-the-future", "1"}, {"--model-path", "/models/m"});
  ASSERT_FALSE(flags.ok());
  EXPECT_THAT(flags.error().message, ::testing::HasSubstr("--of-the-future"));
}

}  // namespace
}  // namespace tuft::app
