// Linear layers with adapters, y = W x + bias + (alpha / rank) B A x, for several layers that read the same x and for
// rows of several adapters. The base product covers all rows at once, the products of the adapters one run each.
#pragma once

#include <span>
#include <vector>

#include "engine/native/batch.h"
#include "engine/native/gemm.h"
#include "engine/native/weights.h"

namespace tuft::engine::native {

// The scaled x A^T of each run, [rows of the run][rank]; null if the run has no adapter for the layer.
using LoraHidden = std::vector<float*>;

// A layer among several that read the same x.
struct LinearUse {
  const Linear* linear = nullptr;
  TargetModule module = TargetModule::kQ;
  int layer = 0;
  float* y = nullptr;            // [rows][out]; in backward() its gradient
  LoraHidden* hidden = nullptr;  // written by forward(), read by backward()
};

struct LinearInput {
  const float* x = nullptr;  // [rows][in]
  int rows = 0;
  int in = 0;
  std::span<const Run> runs;
};

class LoraLinear {
 public:
  LoraLinear(Gemm& gemm, Arena& scratch) : gemm_(gemm), scratch_(scratch) {}

  // Allocates the hidden rows from `keep`.
  void forward(const LinearInput& input, std::span<const LinearUse> uses, Arena& keep);
  // Computes the hidden rows only.
  void hidden(const LinearInput& input, std::span<const LinearUse> uses, Arena& keep);
  // Adds to the gradients of the adapters. Writes the gradient of x unless dx is null.
  void backward(const LinearInput& input, std::span<const LinearUse> uses, float* dx);

 private:
  void shrink(const LinearInput& input, std::span<const LinearUse> uses, const Left* whole, Arena& keep);

  Gemm& gemm_;
  Arena& scratch_;
};

}  // namespace tuft::engine::native
