// The optimizer's arithmetic on one tensor. Every element is computed by itself, and sums run over lanes by index, so
// that a result is the same on every instruction set and however tensors are shared out. Thread-safe, never fails.
#pragma once

#include <cstdint>

namespace tuft::engine::native {

// Of a step t: what is the same for every parameter (Loshchilov and Hutter 2019).
struct AdamFactors {
  float decay = 1;          // 1 - learning rate * weight decay
  float clip = 1;           // of the gradient
  float first_weight = 0;   // 1 - beta1
  float second_keep = 0;    // beta2
  float second_weight = 0;  // 1 - beta2
  float size = 0;           // learning rate / (1 - beta1^t)
  float correction = 0;     // 1 / sqrt(1 - beta2^t)
  float eps = 0;
};

// Takes the step, and zeroes the gradient. False where a value is not finite now.
bool adam_step(const AdamFactors& factors, int64_t n, float* value, float* gradient, float* first, float* second);

// sum(x^2), exact products, summed in f64.
double sum_of_squares(const float* x, int64_t n);

}  // namespace tuft::engine::native
