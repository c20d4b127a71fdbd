// TUFT_TEST_SIMD=avx2: this program's kernels take AVX2 where the processor has more, so that one machine tests both.
#include <cstdlib>
#include <string_view>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "engine/native/ops/gemm_kernel.h"

#if HWY_ARCH_X86
namespace tuft::engine::native {
namespace {

bool only_avx2() {
  const char* wanted = std::getenv("TUFT_TEST_SIMD");
  return wanted != nullptr && std::string_view(wanted) == "avx2";
}

// Before everything else, because the first kernel that runs chooses for all. (Asking hwy::SupportedTargets() later on
// would choose again, and without what was disabled.)
[[gnu::constructor(101)]] void narrow() {
  if (only_avx2()) hwy::DisableTargets(HWY_AVX2 - 1);  // lower bits are wider instruction sets
}

TEST(SimdTarget, OnlyAvx2AskedForThenItsTiles) {
  if (!only_avx2()) return;
  EXPECT_EQ(tile_rows_max(), 6);
}

}  // namespace
}  // namespace tuft::engine::native
#endif
