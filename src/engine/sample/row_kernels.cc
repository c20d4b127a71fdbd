#include "engine/sample/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <hwy/detect_compiler_arch.h>

// Nothing is gained by SSSE3 and by AVX-512 for Ice Lake. Scalable vectors cannot stand in arrays; such machines use
// NEON.
#if HWY_ARCH_X86
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#elif HWY_ARCH_ARM
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/sample/row_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tuft::engine {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kSums = 16;  // lanes of a sum
using F32 = hn::CappedTag<float, kSums>;
using Vector = hn::Vec<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());
constexpr size_t kVectors = kSums / kLanes;

float maximum(const float* row, size_t size) {
  const F32 d;
  // Enough independent maxima to hide the latency of one, and for the compiler to make vectors of where Highway has
  // none.
  constexpr size_t kStep = std::max(kVectors, size_t{4});
  Vector best[kStep];
  for (auto& vector : best) vector = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto ordered = hn::Eq(best[0], best[0]);  // false where a value was NaN, of which Max takes no certain notice
  size_t i = 0;
  for (; i + kStep * kLanes <= size; i += kStep * kLanes) {
    for (size_t v = 0; v < kStep; ++v) {
      const auto value = hn::LoadU(d, row + i + v * kLanes);
      best[v] = hn::Max(best[v], value);
      ordered = hn::And(ordered, hn::Eq(value, value));
    }
  }
  bool all_ordered = hn::AllTrue(d, ordered);
  for (size_t v = 1; v < kStep; ++v) best[0] = hn::Max(best[0], best[v]);
  float result = hn::GetLane(hn::MaxOfLanes(d, best[0]));
  for (; i < size; ++i) {
    result = std::max(result, row[i]);
    all_ordered = all_ordered && !std::isnan(row[i]);
  }
  // Of -0 and +0 either may have been taken; the sum is +0.
  return all_ordered ? result + 0.0F : std::numeric_limits<float>::quiet_NaN();
}

// exp for x <= 0, as the header describes it.
HWY_INLINE Vector exp_negative(Vector x) {
  const F32 d;
  const hn::RebindToSigned<F32> bits;
  x = hn::Max(x, hn::Set(d, -87.0F));
  const auto magic = hn::Set(d, 12582912.0F);  // 1.5 * 2^23: adding it rounds to a whole number, in the lowest bits
  const auto rounded = hn::Add(hn::Mul(x, hn::Set(d, 1.44269504F)), magic);
  const auto n = hn::Sub(rounded, magic);
  // ln 2 in two parts, of which n times the first is exact.
  const auto r = hn::Sub(hn::Sub(x, hn::Mul(n, hn::Set(d, 0.693359375F))), hn::Mul(n, hn::Set(d, -2.12194440e-4F)));
  auto p = hn::Set(d, 1.0F / 720.0F);
  for (const float coefficient : {1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 1.0F}) {
    p = hn::Add(hn::Mul(p, r), hn::Set(d, coefficient));
  }
  // p * 2^n, which is not subnormal: n is added to the exponent.
  return hn::BitCast(d, hn::Add(hn::BitCast(bits, p), hn::ShiftLeft<23>(hn::BitCast(bits, rounded))));
}

// Returns the sum of the weights of a block.
double block_of_weights(const float* row, size_t size, float maximum, float scale, float* weights) {
  const F32 d;
  const auto weights_of = [&](const float* values) HWY_ATTR {
    return exp_negative(hn::Mul(hn::Sub(hn::LoadU(d, values), hn::Set(d, maximum)), hn::Set(d, scale)));
  };
  Vector sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  size_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto values = weights_of(row + i + v * kLanes);
      hn::StoreU(values, d, weights + i + v * kLanes);
      sums[v] = hn::Add(sums[v], values);
    }
  }
  float lanes[kSums];
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, lanes + v * kLanes);
  for (; i < size; i += kLanes) {
    float last[kLanes];
    const size_t count = std::min(kLanes, size - i);
    std::fill_n(last, kLanes, maximum);
    std::copy_n(row + i, count, last);
    hn::StoreU(weights_of(last), d, last);
    std::copy_n(last, count, weights + i);
    for (size_t lane = 0; lane < count; ++lane) lanes[0] += last[lane];
  }
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

void all_weights(const float* row, size_t size, float maximum, float scale, float* weights, double* block_sums) {
  for (size_t i = 0; i < size; i += kRowBlock) {
    *block_sums++ = block_of_weights(row + i, std::min(kRowBlock, size - i), maximum, scale, weights + i);
  }
}

size_t at_least(const float* row, size_t begin, size_t size, float least) {
  const F32 d;
  size_t i = begin;
  for (; i + kLanes <= size; i += kLanes) {
    const auto found = hn::Ge(hn::LoadU(d, row + i), hn::Set(d, least));
    if (!hn::AllFalse(d, found)) return i + hn::FindKnownFirstTrue(d, found);
  }
  while (i < size && !(row[i] >= least)) ++i;
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuft::engine {

HWY_EXPORT(maximum);
HWY_EXPORT(all_weights);
HWY_EXPORT(at_least);

float row_maximum(std::span<const float> row) {
  return HWY_DYNAMIC_DISPATCH(maximum)(row.data(), row.size());
}

void row_weights(std::span<const float> row, float maximum, float scale, std::span<float> weights,
                 std::span<double> block_sums) {
  HWY_DYNAMIC_DISPATCH(all_weights)(row.data(), row.size(), maximum, scale, weights.data(), block_sums.data());
}

size_t find_at_least(std::span<const float> row, size_t begin, float least) {
  return HWY_DYNAMIC_DISPATCH(at_least)(row.data(), begin, row.size(), least);
}

}  // namespace tuft::engine
#endif
