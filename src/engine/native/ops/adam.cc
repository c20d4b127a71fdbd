#include "engine/native/ops/adam.h"

#include "engine/native/ops/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/native/ops/adam.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/native/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuft::engine::native {
namespace HWY_NAMESPACE {

HWY_INLINE bool all_zero(hn::Vec<F32> x) {
  return hn::AllTrue(F32(), hn::Eq(x, hn::Zero(F32())));
}

bool update(const AdamFactors& factors, int64_t n, float* value, float* gradient, float* first, float* second) {
  const F32 d;
  auto nothing = hn::Zero(d);  // adding x * 0 finds values that are not finite
  const auto body = [&](float* w, float* g, float* m, float* v) HWY_ATTR {
    const auto slope = hn::Mul(hn::LoadU(d, g), hn::Set(d, factors.clip));
    const auto old = hn::LoadU(d, m);
    const auto mean = hn::MulAdd(hn::Set(d, factors.first_weight), hn::Sub(slope, old), old);
    const auto kept = hn::Mul(hn::Set(d, factors.second_keep), hn::LoadU(d, v));
    const auto square = hn::MulAdd(hn::Mul(hn::Set(d, factors.second_weight), slope), slope, kept);
    const auto root = hn::MulAdd(hn::Sqrt(square), hn::Set(d, factors.correction), hn::Set(d, factors.eps));
    const auto decayed = hn::Mul(hn::LoadU(d, w), hn::Set(d, factors.decay));
    hn::StoreU(mean, d, m);
    hn::StoreU(square, d, v);
    const auto moved = hn::NegMulAdd(hn::Set(d, factors.size), hn::Div(mean, root), decayed);
    nothing = hn::MulAdd(moved, hn::Zero(d), nothing);
    hn::StoreU(moved, d, w);
    hn::StoreU(hn::Zero(d), d, g);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(value + i, gradient + i, first + i, second + i);
  if (i == n) return all_zero(nothing);
  const int count = static_cast<int>(n - i);
  Tail w(value + i, count, 0.0F);
  Tail g(gradient + i, count, 0.0F);
  Tail m(first + i, count, 0.0F);
  Tail v(second + i, count, 0.0F);
  body(w.value, g.value, m.value, v.value);
  for (int j = 0; j < count; ++j) {
    value[i + j] = w.value[j];
    gradient[i + j] = 0.0F;
    first[i + j] = m.value[j];
    second[i + j] = v.value[j];
  }
  return all_zero(nothing);
}

double squares(const float* x, int64_t n) {
  double lane[kPanel] = {};
  int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) {
    for (int j = 0; j < kPanel; ++j) lane[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  }
  for (int j = 0; i + j < n; ++j) lane[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  for (int width = kPanel / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lane[j] += lane[j + width];
  }
  return lane[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine::native
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuft::engine::native {

HWY_EXPORT(update);
HWY_EXPORT(squares);

bool adam_step(const AdamFactors& factors, int64_t n, float* value, float* gradient, float* first, float* second) {
  return HWY_DYNAMIC_DISPATCH(update)(factors, n, value, gradient, first, second);
}

double sum_of_squares(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(squares)(x, n);
}

}  // namespace tuft::engine::native
#endif
