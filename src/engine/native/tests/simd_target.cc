// With TUFT_TEST_SIMD=avx2 the kernels of this program use AVX2 although the processor has more, to test both.
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

// Runs before everything else, because the first kernel that runs selects the target for all. (A later call of
// hwy::SupportedTargets() would select again, without this restriction.)
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
