// Linear layers with adapters: y = W x + bias + (alpha / rank) B A x, for several layers that read the same x, over
// rows of several adapters: the base product over all rows at once, the adapters' run by run.
#pragma once

#include <span>
#include <vector>

#include "engine/native/batch.h"
#include "engine/native/gemm.h"
#include "engine/native/weights.h"

namespace tuft::engine::native {

// x A^T of each run, [rows of the run][rank], scaled; null where the run has no adapter there.
using LoraHidden = std::vector<float*>;

// One of the layers that read the same x.
struct LinearUse {
  const Linear* linear = nullptr;
  Site site = Site::kQ;
  int layer = 0;
  float* y = nullptr;            // [rows][out]; in backward() the gradient of it
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

  // Hidden rows are taken from `keep`.
  void forward(const LinearInput& input, std::span<const LinearUse> uses, Arena& keep);
  // The hidden rows alone.
  void hidden(const LinearInput& input, std::span<const LinearUse> uses, Arena& keep);
  // Adds to the gradients of the adapters and, where dx is not null, writes the gradient of x.
  void backward(const LinearInput& input, std::span<const LinearUse> uses, float* dx);

 private:
  void shrink(const LinearInput& input, std::span<const LinearUse> uses, const Left* whole, Arena& keep);

  Gemm& gemm_;
  Arena& scratch_;
};

}  // namespace tuft::engine::native
