#include "engine/native/ops/peak.h"

#include <algorithm>
#include <array>
#include <numeric>
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

// Enough independent sums to keep two units busy during the latency of one operation.
constexpr int kSums = 12;

// Returns the number of operations. `result` depends on all of them, so that none is optimized away.
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

namespace {

// Returns the operations per second of one thread: the median of rounds so short that few are interrupted.
double rate_of_thread() {
  constexpr int kTries = 31;
  constexpr int kRounds = 20'000;  // about 50 us
  std::array<double, kTries> rates{};
  float value = 1.0F;
  for (double& rate : rates) {
    const Nanos begin = system_clock().monotonic();
    const double operations = HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, value, &value);
    rate = operations / to_seconds(std::max<Nanos>(1, system_clock().monotonic() - begin));
  }
  std::nth_element(rates.begin(), rates.begin() + kTries / 2, rates.end());
  return rates[kTries / 2];
}

}  // namespace

double measure_peak_flops(ThreadPool& pool) {
  std::vector<double> rates(static_cast<size_t>(pool.threads()));
  const auto work = [&](int task, int) { rates[static_cast<size_t>(task)] = rate_of_thread(); };
  pool.run(pool.threads(), work);
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

}  // namespace tuft::engine::native
#endif
