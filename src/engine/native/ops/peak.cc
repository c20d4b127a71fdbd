#include "engine/native/ops/peak.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "engine/native/ops/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/native/ops/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/native/ops/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuft::engine::native {
namespace HWY_NAMESPACE {

// As many sums as keep two units busy for the time that one addition takes.
constexpr int kSums = 12;

// Gives the operations, and a value that depends on all of them.
double multiply_add(int rounds, float start, float* result) {
  const F32 d;
  const auto factor = hn::Set(d, 0.5F);
  hn::Vec<F32> sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = hn::Set(d, start + static_cast<float>(i));
  for (int round = 0; round < rounds; ++round) {
    for (auto& sum : sums) sum = hn::MulAdd(sum, factor, factor);
  }
  auto all = sums[0];
  for (int i = 1; i < kSums; ++i) all = hn::Add(all, sums[i]);
  *result = hn::GetLane(all);
  return 2.0 * kLanes * kSums * rounds;
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine::native
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuft::engine::native {

HWY_EXPORT(multiply_add);

double measure_peak_flops(ThreadPool& pool) {
  constexpr int kTries = 8;
  constexpr int kRounds = 40'000;  // about 0.1 ms
  const int threads = pool.threads();
  struct alignas(64) Result {
    float value = 1.0F;
    double operations = 0;
  };
  std::vector<Result> results(static_cast<size_t>(threads));
  const auto work = [&](int task, int) {
    Result& result = results[static_cast<size_t>(task)];
    result.operations = HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, result.value, &result.value);
  };
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const Nanos begin = system_clock().monotonic();
    pool.run(threads, work);
    const double seconds = to_seconds(system_clock().monotonic() - begin);
    if (seconds > 0) best = std::max(best, results.front().operations * threads / seconds);
  }
  return best;
}

}  // namespace tuft::engine::native
#endif
