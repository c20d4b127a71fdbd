// The optimizer's arithmetic on one tensor. Elements are independent, and sums run over lanes by index, so that a
// result is the same on every instruction set and however tensors are divided among threads. Thread-safe, never fails.
#pragma once

#include <cstdint>

namespace tuft::engine::native {

// The factors of step t, equal for every parameter (Loshchilov and Hutter 2019).
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

// Makes the step and zeroes the gradient. Returns false if a value is not finite afterwards.
bool adam_step(const AdamFactors& factors, int64_t n, float* value, float* gradient, float* first, float* second);

// Returns sum(x^2) of exact products, summed in f64.
double sum_of_squares(const float* x, int64_t n);

}  // namespace tuft::engine::native
