// Arithmetic on single rows. Every sum runs over 16 lanes by column number and combines the lanes in a fixed order, so
// that a result is the same on every instruction set and whatever other rows are computed. Thread-safe, never fails.
#pragma once

#include <cstdint>

namespace tuft::engine::native {

// y = x / sqrt(mean(x^2) + eps) * w. Returns the factor 1 / sqrt(...). y may be x.
float rms_norm(const float* x, const float* w, float eps, int n, float* y);
// dx (+)= gradient of rms_norm; `inverse` is what it returned. Unless `add`, dx may be dy.
void rms_norm_backward(const float* x, const float* w, float inverse, const float* dy, int n, bool add, float* dx);

// out = silu(gate) * up
void swiglu(const float* gate, const float* up, int n, float* out);
// Takes the gradient of swiglu's output and writes the gradients of its inputs. The outputs may be any of the inputs.
void swiglu_backward(const float* gate, const float* up, const float* dout, int n, float* dgate, float* dup);

// Rotates the pairs (x[i], x[i + n / 2]) by the angles with the given cosines and sines (n / 2 of each). With `inverse`
// it applies the transposed map, which is the gradient.
void rotate_half(const float* cosines, const float* sines, int n, bool inverse, float* x);

void add_rows(const float* x, int n, float* y);  // y += x
void scale_row(float factor, int n, float* x);   // x *= factor

// Returns log(sum(exp(x))), computed around the maximum.
float logsumexp(const float* x, int n);
// x = -factor * exp(x - log_sum): the term of a log-probability's gradient that is common to all logits.
void softmax_gradient(float factor, float log_sum, int n, float* x);

}  // namespace tuft::engine::native
