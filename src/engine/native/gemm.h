// Matrix products on the pool. Each element of a result is one chain of fused multiply-adds, over the products of its
// sum in order and over k within each product. It does not depend on the number of rows or threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/back_end/thread_pool.h"
#include "engine/native/arena.h"
#include "engine/native/ops/gemm_kernel.h"

namespace tuft::engine::native {

// A packed left operand: rows [first_row, first_row + rows) of the result.
struct Left {
  const float* data = nullptr;
  int rows = 0;
  int k = 0;
  int first_row = 0;
};

// A right operand of k rows and n columns, in one of three forms.
struct Right {
  enum class Form : uint8_t {
    kRowMajor,  // [k][n], f32
    kPanels,    // weights [ceil(n / 16)][k][16]: x W^T of a layer with n outputs
    kReverse,   // weights of a layer with k outputs and n inputs, [ceil(k / 16)][n][16]: dy W
  };
  Form form = Form::kRowMajor;
  const void* data = nullptr;
  bool bf16 = false;
  int k = 0;
  int n = 0;
};

struct Product {
  Left left;
  Right right;
};

// c = bias + products, or c += products if `add`. The first product covers all rows unless `add` is set.
struct Sum {
  float* c = nullptr;
  ptrdiff_t stride = 0;
  int columns = 0;
  const float* bias = nullptr;
  bool add = false;
  std::vector<Product> products;
};

// g += p^T q over `rows` rows. Adjacent entries of a list with the same q have the same rows and q_columns.
struct Outer {
  const float* p = nullptr;
  ptrdiff_t p_stride = 0;
  int p_columns = 0;
  const float* q = nullptr;
  ptrdiff_t q_stride = 0;
  int q_columns = 0;
  int rows = 0;
  float* g = nullptr;  // [p_columns][q_columns]
};

class Gemm {
 public:
  explicit Gemm(ThreadPool& pool);

  // Packs a row-major matrix for multiply(). The result is in `arena`; one row needs no copy.
  Left pack(Arena& arena, const float* src, ptrdiff_t stride, int first_row, int rows, int k);
  // Computes all sums in parallel. No sum may read what another writes.
  void multiply(std::span<const Sum> sums);
  // Computes all entries in parallel; those with the same g run in order.
  void accumulate(std::span<const Outer> outers);

  ThreadPool& pool() { return pool_; }

 private:
  struct Task {
    const Sum* sum = nullptr;
    int panel_begin = 0;
    int panel_end = 0;
    int part = 0;  // index of this part of the tiles
    int parts = 1;
  };

  void plan(std::span<const Sum> sums);
  void run_task(const Task& task, int thread);
  void add_product(const Task& task, const Product& product, Start start, float* scratch) const;

  ThreadPool& pool_;
  std::vector<Task> tasks_;
  std::vector<Floats> scratch_;  // per thread
};

}  // namespace tuft::engine::native
