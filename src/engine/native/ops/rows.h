// Arithmetic on single rows. Every sum runs over 16 lanes by column number and is folded in one order, so that a
// result is the same on every instruction set and whatever other rows are computed. Thread-safe, never fails.
#pragma once

#include <cstdint>

namespace tuft::engine::native {

// y = x / sqrt(mean(x^2) + eps) * w. Returns the factor 1 / sqrt(...). y may be x.
float rms_norm(const float* x, const float* w, float eps, int n, float* y);
// dx (+)= gradient of rms_norm; `inverse` is what it returned. dx may be dy where it is not added to.
void rms_norm_backward(const float* x, const float* w, float inverse, const float* dy, int n, bool add, float* dx);

// out = silu(gate) * up
void swiglu(const float* gate, const float* up, int n, float* out);
// Takes the gradient of swiglu's output; writes those of its inputs. The outputs may be any of the inputs.
void swiglu_backward(const float* gate, const float* up, const float* dout, int n, float* dgate, float* dup);

// Rotates the pairs (x[i], x[i + n / 2]) by the angles whose cosines and sines are given (n / 2 of each); with
// `inverse` it applies the transposed map, which is the gradient.
void rotate_half(const float* cosines, const float* sines, int n, bool inverse, float* x);

void add_rows(const float* x, int n, float* y);  // y += x
void scale_row(float factor, int n, float* x);   // x *= factor

// log(sum(exp(x))), computed around the maximum.
float log_sum_exp(const float* x, int n);
// x = -factor * exp(x - normalizer): the part of a log-probability's gradient that every logit has.
void softmax_gradient(float factor, float normalizer, int n, float* x);

}  // namespace tuft::engine::native
