// Sums and maxima over rows, in 16 lanes by column number.
#if defined(TUFT_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUFT_LANES_INL_H
#undef TUFT_LANES_INL_H
#else
#define TUFT_LANES_INL_H
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "engine/native/ops/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuft::engine::native {
namespace HWY_NAMESPACE {

struct Lanes {
  hn::Vec<F32> v[kVectors];

  HWY_INLINE explicit Lanes(float value) {
    for (auto& vector : v) vector = hn::Set(F32(), value);
  }

  HWY_INLINE float sum() const {
    alignas(64) float lane[kPanel];
    store(lane);
    for (int width = kPanel / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    }
    return lane[0];
  }

  HWY_INLINE float max() const {
    alignas(64) float lane[kPanel];
    store(lane);
    float best = lane[0];
    for (const float value : lane) best = value > best ? value : best;
    return best;
  }

 private:
  HWY_INLINE void store(float* lane) const {
    for (int i = 0; i < kVectors; ++i) hn::Store(v[i], F32(), lane + i * kLanes);
  }
};

// The last columns of a row, padded with `fill`.
struct Tail {
  alignas(64) float value[kPanel];
  HWY_INLINE Tail(const float* x, int count, float fill) {
    for (int i = 0; i < kPanel; ++i) value[i] = i < count ? x[i] : fill;
  }
};

// Calls fold(accumulator, x) for each vector of the row.
template <typename Fold>
HWY_INLINE Lanes fold_row(const float* x, int n, float start, float fill, const Fold& fold) {
  const F32 d;
  Lanes lanes(start);
  int i = 0;
  for (; i + kPanel <= n; i += kPanel) {
    for (int v = 0; v < kVectors; ++v) lanes.v[v] = fold(lanes.v[v], hn::LoadU(d, x + i + v * kLanes));
  }
  if (i < n) {
    const Tail tail(x + i, n - i, fill);
    for (int v = 0; v < kVectors; ++v) lanes.v[v] = fold(lanes.v[v], hn::Load(d, tail.value + v * kLanes));
  }
  return lanes;
}

HWY_INLINE float row_max(const float* x, int n) {
  return fold_row(x, n, x[0], x[0], [](auto best, auto value) HWY_ATTR { return hn::Max(best, value); }).max();
}

// Applies map(vector) to the row in place.
template <typename Map>
HWY_INLINE void map_row(float* x, int n, const Map& map) {
  const F32 d;
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(map(hn::LoadU(d, x + i)), d, x + i);
  if (i < n) {
    Tail tail(x + i, n - i, 0.0F);
    hn::Store(map(hn::Load(d, tail.value)), d, tail.value);
    for (int j = 0; i + j < n; ++j) x[i + j] = tail.value[j];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine::native
HWY_AFTER_NAMESPACE();

#endif
