#include "worker/adapter_page.h"

#include <cstring>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include "base/testing/failing_allocations.h"
#include "base/testing/temp_dir.h"
#include "worker/adapter_pager.h"

namespace tuft::worker {
namespace {

engine::AdapterState odd_state() {
  engine::AdapterState state;
  state.spec.rank = 2;
  state.spec.seed = 7;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  state.tensors = {{engine::TargetModule::kQ, 3, {1.0F, -0.0F, 1e-42F}, {nan, 2.0F}},
                   {engine::TargetModule::kLmHead, 0, {}, {5.0F}}};
  state.has_optimizer = true;
  state.moments.step = 9;
  state.moments.first = {{engine::TargetModule::kQ, 3, {0.5F}, {}}};
  state.moments.second = {{engine::TargetModule::kQ, 3, {0.25F}, {}}};
  state.gradients = {{engine::TargetModule::kQ, 3, {-7.0F}, {std::numeric_limits<float>::infinity()}}};
  return state;
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0);
}

void expect_same(const std::vector<engine::LoraTensor>& left, const std::vector<engine::LoraTensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].module, right[i].module);
    EXPECT_EQ(left[i].layer, right[i].layer);
    EXPECT_TRUE(same_bits(left[i].a, right[i].a));
    EXPECT_TRUE(same_bits(left[i].b, right[i].b));
  }
}

TEST(AdapterPage, WrittenThenReadBackBitForBitAndAgain) {
  const TempDir directory;
  const engine::AdapterState state = odd_state();
  AdapterPage page;
  ASSERT_TRUE(page.write(directory / "pages", state).ok());
  EXPECT_EQ(page.bytes(), 10 * static_cast<int64_t>(sizeof(float)));
  for (int time = 0; time < 2; ++time) {
    const auto back = page.read();
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->spec.rank, 2);
    EXPECT_EQ(back->spec.seed, 7U);
    EXPECT_TRUE(back->has_optimizer);
    EXPECT_EQ(back->moments.step, 9);
    expect_same(back->tensors, state.tensors);
    expect_same(back->moments.first, state.moments.first);
    expect_same(back->moments.second, state.moments.second);
    expect_same(back->gradients, state.gradients);
  }
}

TEST(AdapterPage, LeavesNoNameInTheDirectory) {
  const TempDir directory;
  AdapterPage page;
  ASSERT_TRUE(page.write(directory / "pages", odd_state()).ok());
  EXPECT_TRUE(std::filesystem::is_empty(directory / "pages"));
}

TEST(AdapterPage, NoPlaceOrNothingWrittenThenAnErrorThatSaysSo) {
  const AdapterPage empty;
  EXPECT_EQ(empty.read().error().reason, "adapter_page_lost");
  AdapterPage page;
  EXPECT_EQ(page.write("/proc/none", odd_state()).error().code, ErrorCode::kInternal);
}

TEST(AdapterPage, MemoryRunsOutThenAJobSaysSoWithoutMemory) {
  const TempDir directory;
  PageJob job;
  job.page = std::make_shared<AdapterPage>();
  ASSERT_TRUE(job.page->write(directory / "pages", odd_state()).ok());
  FailingAllocations::start(0, FailingAllocations::Which::kAllAfter);
  job.run();
  EXPECT_TRUE(FailingAllocations::stop());
  ASSERT_FALSE(job.status.ok());
  EXPECT_EQ(job.status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(job.status.error().reason, "memory");
}

}  // namespace
}  // namespace tuft::worker
