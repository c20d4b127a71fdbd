#include "engine/native/ops/rows.h"

#include <cmath>

#include "engine/native/ops/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/native/ops/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/native/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuft::engine::native {
namespace HWY_NAMESPACE {

float norm(const float* x, const float* w, float eps, int n, float* y) {
  const float squares =
      fold_row(x, n, 0.0F, 0.0F, [](auto sum, auto value) HWY_ATTR { return hn::MulAdd(value, value, sum); }).sum();
  const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) y[i] = x[i] * inverse * w[i];
  return inverse;
}

void norm_backward(const float* x, const float* w, float inverse, const float* dy, int n, bool add, float* dx) {
  const F32 d;
  Lanes lanes(0.0F);
  int i = 0;
  for (; i + kPanel <= n; i += kPanel) {
    for (int v = 0; v < kVectors; ++v) {
      const int at = i + v * kLanes;
      const auto weighted = hn::Mul(hn::LoadU(d, w + at), hn::LoadU(d, dy + at));
      lanes.v[v] = hn::MulAdd(weighted, hn::LoadU(d, x + at), lanes.v[v]);
    }
  }
  float dot = lanes.sum();
  for (; i < n; ++i) dot += w[i] * dy[i] * x[i];
  const float along = dot * inverse * inverse / static_cast<float>(n);
  if (add) {
    for (int j = 0; j < n; ++j) dx[j] += inverse * (w[j] * dy[j] - x[j] * along);
  } else {
    for (int j = 0; j < n; ++j) dx[j] = inverse * (w[j] * dy[j] - x[j] * along);
  }
}

HWY_INLINE hn::Vec<F32> sigmoid(hn::Vec<F32> x) {
  const F32 d;
  const auto one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(x))));
}

// Calls body(offset) for each vector of a row of n columns; the last vector works on copies of the inputs.
void gated(const float* gate, const float* up, int n, float* out) {
  const F32 d;
  const auto body = [&](const float* g, const float* u, float* to) HWY_ATTR {
    const auto x = hn::LoadU(d, g);
    hn::StoreU(hn::Mul(hn::Mul(x, sigmoid(x)), hn::LoadU(d, u)), d, to);
  };
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) body(gate + i, up + i, out + i);
  if (i < n) {
    Tail g(gate + i, n - i, 0.0F);
    const Tail u(up + i, n - i, 0.0F);
    body(g.value, u.value, g.value);
    for (int j = 0; i + j < n; ++j) out[i + j] = g.value[j];
  }
}

void gated_backward(const float* gate, const float* up, const float* dout, int n, float* dgate, float* dup) {
  const F32 d;
  const auto one = hn::Set(d, 1.0F);
  const auto body = [&](const float* g, const float* u, const float* from, float* dg, float* du) HWY_ATTR {
    const auto x = hn::LoadU(d, g);
    const auto s = sigmoid(x);
    const auto grad = hn::LoadU(d, from);
    const auto slope = hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
    const auto to_gate = hn::Mul(hn::Mul(grad, hn::LoadU(d, u)), slope);
    hn::StoreU(hn::Mul(grad, hn::Mul(x, s)), d, du);
    hn::StoreU(to_gate, d, dg);
  };
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) body(gate + i, up + i, dout + i, dgate + i, dup + i);
  if (i < n) {
    Tail g(gate + i, n - i, 0.0F);
    Tail u(up + i, n - i, 0.0F);
    const Tail from(dout + i, n - i, 0.0F);
    body(g.value, u.value, from.value, g.value, u.value);
    for (int j = 0; i + j < n; ++j) {
      dgate[i + j] = g.value[j];
      dup[i + j] = u.value[j];
    }
  }
}

void rotate(const float* cosines, const float* sines, int n, bool inverse, float* x) {
  const int half = n / 2;
  const float sign = inverse ? -1.0F : 1.0F;
  float* y = x + half;
  for (int i = 0; i < half; ++i) {
    const float c = cosines[i];
    const float s = sign * sines[i];
    const float low = x[i];
    const float high = y[i];
    x[i] = low * c - high * s;
    y[i] = high * c + low * s;
  }
}

void add(const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] += x[i];
}

void scale(float factor, int n, float* x) {
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

float row_logsumexp(const float* x, int n) {
  const F32 d;
  const float top = row_max(x, n);
  const auto base = hn::Set(d, top);
  const float sum = fold_row(x, n, 0.0F, -INFINITY, [&](auto total, auto value) HWY_ATTR {
                      return hn::Add(total, hn::Exp(d, hn::Sub(value, base)));
                    }).sum();
  return top + std::log(sum);
}

void probabilities(float factor, float base, int n, float* x) {
  const F32 d;
  const auto minus = hn::Set(d, -factor);
  const auto shift = hn::Set(d, base);
  map_row(x, n, [&](auto value) HWY_ATTR { return hn::Mul(minus, hn::Exp(d, hn::Sub(value, shift))); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine::native
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuft::engine::native {

HWY_EXPORT(norm);
HWY_EXPORT(norm_backward);
HWY_EXPORT(gated);
HWY_EXPORT(gated_backward);
HWY_EXPORT(rotate);
HWY_EXPORT(add);
HWY_EXPORT(scale);
HWY_EXPORT(row_logsumexp);
HWY_EXPORT(probabilities);

float rms_norm(const float* x, const float* w, float eps, int n, float* y) {
  return HWY_DYNAMIC_DISPATCH(norm)(x, w, eps, n, y);
}

void rms_norm_backward(const float* x, const float* w, float inverse, const float* dy, int n, bool add, float* dx) {
  HWY_DYNAMIC_DISPATCH(norm_backward)(x, w, inverse, dy, n, add, dx);
}

void swiglu(const float* gate, const float* up, int n, float* out) {
  HWY_DYNAMIC_DISPATCH(gated)(gate, up, n, out);
}

void swiglu_backward(const float* gate, const float* up, const float* dout, int n, float* dgate, float* dup) {
  HWY_DYNAMIC_DISPATCH(gated_backward)(gate, up, dout, n, dgate, dup);
}

void rotate_half(const float* cosines, const float* sines, int n, bool inverse, float* x) {
  HWY_DYNAMIC_DISPATCH(rotate)(cosines, sines, n, inverse, x);
}

void add_rows(const float* x, int n, float* y) {
  HWY_DYNAMIC_DISPATCH(add)(x, n, y);
}
void scale_row(float factor, int n, float* x) {
  HWY_DYNAMIC_DISPATCH(scale)(factor, n, x);
}
float logsumexp(const float* x, int n) {
  return HWY_DYNAMIC_DISPATCH(row_logsumexp)(x, n);
}

void softmax_gradient(float factor, float log_sum, int n, float* x) {
  HWY_DYNAMIC_DISPATCH(probabilities)(factor, log_sum, n, x);
}

}  // namespace tuft::engine::native
#endif
