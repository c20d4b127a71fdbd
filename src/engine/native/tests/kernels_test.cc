// Compares every kernel with f64 arithmetic, for sizes around the edges of tiles, panels and blocks.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/native/gemm.h"
#include "engine/native/ops/attention.h"
#include "engine/native/ops/rows.h"
#include "engine/native/tests/reference_model.h"

namespace tuft::engine::native::test {
namespace {

Floats filled(Numbers& numbers, size_t count, float scale = 1.0F) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values.data()[i] = numbers.next() * scale;
  return values;
}

// Packs W [n][k] into panels.
Floats panels_of(const Floats& w, int n, int k) {
  Floats packed(static_cast<size_t>((n + kPanel - 1) / kPanel * kPanel) * static_cast<size_t>(k), true);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < k; ++j) packed.data()[(i / kPanel * k + j) * kPanel + i % kPanel] = w.data()[i * k + j];
  }
  return packed;
}

Buffer<uint16_t> bf16_of(const Floats& values) {
  Buffer<uint16_t> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    result.data()[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(values.data()[i]) >> 16);
  }
  return result;
}

void truncate_to_bf16(Floats& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(values.data()[i]) & 0xFFFF0000U);
  }
}

struct Shape {
  int m, k, n;
};
constexpr Shape kShapes[] = {{1, 1, 1},    {1, 7, 16},   {2, 16, 15},   {3, 33, 17},   {5, 64, 64},    {6, 40, 31},
                             {7, 12, 100}, {12, 48, 33}, {13, 600, 20}, {25, 513, 80}, {40, 1100, 130}};

// Tests c = bias + x W^T, in both orientations of W and both types.
void check_product(const Shape& shape, bool bf16, Right::Form form, int threads) {
  const auto [m, k, n] = shape;
  Numbers numbers(static_cast<uint64_t>(m * 10007 + k * 101 + n));
  ThreadPool pool(threads);
  Gemm gemm(pool);
  Arena arena;
  const Floats x = filled(numbers, static_cast<size_t>(m * k));
  Floats w = filled(numbers, static_cast<size_t>(n * k));
  if (bf16) truncate_to_bf16(w);
  const Floats bias = filled(numbers, static_cast<size_t>(n));
  const bool reverse = form == Right::Form::kReverse;
  // kReverse multiplies by the same weights, stored transposed.
  Floats stored = filled(numbers, static_cast<size_t>(n * k));
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < k; ++j) stored.data()[reverse ? j * n + i : i * k + j] = w.data()[i * k + j];
  }
  const Floats packed = reverse ? panels_of(stored, k, n) : panels_of(stored, n, k);
  const Buffer<uint16_t> packed16 = bf16_of(packed);
  Floats c(static_cast<size_t>(m * n), true);
  const Left left = gemm.pack(arena, x.data(), k, 0, m, k);
  const void* data = bf16 ? static_cast<const void*>(packed16.data()) : packed.data();
  const Sum sum{c.data(), n, n, bias.data(), false, {{left, {form, data, bf16, k, n}}}};
  gemm.multiply({&sum, 1});
  for (int row = 0; row < m; ++row) {
    for (int j = 0; j < n; ++j) {
      double expected = bias.data()[j];
      for (int i = 0; i < k; ++i) expected += static_cast<double>(x.data()[row * k + i]) * w.data()[j * k + i];
      ASSERT_NEAR(c.data()[row * n + j], expected, 1e-5 * (1 + std::sqrt(k)))
          << m << "x" << k << "x" << n << " at " << row << ", " << j;
    }
  }
}

TEST(Gemm, PanelsThenProductOfReference) {
  for (const Shape& shape : kShapes) {
    for (const bool bf16 : {false, true}) check_product(shape, bf16, Right::Form::kPanels, 2);
  }
}

TEST(Gemm, TransposedPanelsThenProductOfReference) {
  for (const Shape& shape : kShapes) {
    for (const bool bf16 : {false, true}) check_product(shape, bf16, Right::Form::kReverse, 2);
  }
}

TEST(Gemm, SumOfRunsThenEachRowGetsItsOwn) {
  Numbers numbers(4);
  ThreadPool pool(2);
  Gemm gemm(pool);
  Arena arena;
  constexpr int kRows = 31;
  constexpr int kDepth = 9;
  constexpr int kColumns = 37;
  const Floats x = filled(numbers, kRows * kDepth);
  const Floats first = filled(numbers, kDepth * kColumns);
  const Floats second = filled(numbers, kDepth * kColumns);
  Floats c(kRows * kColumns, true);
  const Right whole{Right::Form::kRowMajor, first.data(), false, kDepth, kColumns};
  const Right some{Right::Form::kRowMajor, second.data(), false, kDepth, kColumns};
  const Sum sum{c.data(),
                kColumns,
                kColumns,
                nullptr,
                false,
                {{gemm.pack(arena, x.data(), kDepth, 0, kRows, kDepth), whole},
                 {gemm.pack(arena, x.data() + 5 * kDepth, kDepth, 5, 14, kDepth), some}}};
  gemm.multiply({&sum, 1});
  for (int row = 0; row < kRows; ++row) {
    for (int j = 0; j < kColumns; ++j) {
      double expected = 0;
      for (int i = 0; i < kDepth; ++i) {
        const double weight = first.data()[i * kColumns + j] +
                              (row >= 5 && row < 19 ? static_cast<double>(second.data()[i * kColumns + j]) : 0.0);
        expected += x.data()[row * kDepth + i] * weight;
      }
      ASSERT_NEAR(c.data()[row * kColumns + j], expected, 1e-5);
    }
  }
}

TEST(Gemm, AnyNumberOfRowsThenSameBitsOfEachRow) {
  Numbers numbers(8);
  ThreadPool pool(2);
  Gemm gemm(pool);
  Arena arena;
  constexpr int kDepth = 1030;
  constexpr int kColumns = 75;
  const Floats x = filled(numbers, 50 * kDepth);
  const Floats w = filled(numbers, 80 * kDepth);
  const Right right{Right::Form::kPanels, w.data(), false, kDepth, kColumns};
  std::vector<float> alone;
  for (const int rows : {1, 2, 6, 7, 13, 24, 50}) {
    arena.reset();
    Floats c(static_cast<size_t>(rows * kColumns));
    const Sum sum{c.data(), kColumns, kColumns,
                  nullptr,  false,    {{gemm.pack(arena, x.data(), kDepth, 0, rows, kDepth), right}}};
    gemm.multiply({&sum, 1});
    if (rows == 1) alone.assign(c.data(), c.data() + kColumns);
    EXPECT_EQ(alone, std::vector<float>(c.data(), c.data() + kColumns)) << rows << " rows";
  }
}

TEST(Gemm, OuterProductsThenSumsOfReference) {
  for (const Shape& shape : kShapes) {
    const auto [rows, p_columns, q_columns] = Shape{shape.k, shape.m, shape.n};
    Numbers numbers(static_cast<uint64_t>(rows));
    ThreadPool pool(2);
    Gemm gemm(pool);
    const Floats p = filled(numbers, static_cast<size_t>(rows * p_columns));
    const Floats q = filled(numbers, static_cast<size_t>(rows * q_columns));
    Floats g = filled(numbers, static_cast<size_t>(p_columns * q_columns));
    const std::vector<float> before(g.data(), g.data() + g.size());
    const Outer outer{p.data(), p_columns, p_columns, q.data(), q_columns, q_columns, rows, g.data()};
    gemm.accumulate({&outer, 1});
    for (int i = 0; i < p_columns; ++i) {
      for (int j = 0; j < q_columns; ++j) {
        double expected = before[static_cast<size_t>(i * q_columns + j)];
        for (int row = 0; row < rows; ++row) {
          expected += static_cast<double>(p.data()[row * p_columns + i]) * q.data()[row * q_columns + j];
        }
        ASSERT_NEAR(g.data()[i * q_columns + j], expected, 1e-5 * (1 + std::sqrt(rows)));
      }
    }
  }
}

constexpr int kRowSizes[] = {1, 2, 7, 8, 15, 16, 17, 31, 64, 100, 1025};

TEST(Rows, NormThenReferenceForwardAndBackward) {
  for (const int n : kRowSizes) {
    Numbers numbers(static_cast<uint64_t>(n));
    const auto size = static_cast<size_t>(n);
    const Floats x = filled(numbers, size, 3.0F);
    const Floats w = filled(numbers, size);
    const Floats dy = filled(numbers, size);
    Floats y(size);
    Floats dx(size, true);
    const float inverse = rms_norm(x.data(), w.data(), 1e-5F, n, y.data());
    rms_norm_backward(x.data(), w.data(), inverse, dy.data(), n, true, dx.data());
    double squares = 0;
    double dot = 0;
    for (int i = 0; i < n; ++i) {
      squares += static_cast<double>(x.data()[i]) * x.data()[i];
      dot += static_cast<double>(w.data()[i]) * dy.data()[i] * x.data()[i];
    }
    const double factor = 1 / std::sqrt(squares / n + 1e-5);
    for (int i = 0; i < n; ++i) {
      EXPECT_NEAR(y.data()[i], x.data()[i] * factor * w.data()[i], 1e-5);
      const double gradient = factor * w.data()[i] * dy.data()[i] - x.data()[i] * dot * factor * factor * factor / n;
      EXPECT_NEAR(dx.data()[i], gradient, 1e-4 * (1 + std::abs(gradient))) << "of " << n;
    }
  }
}

TEST(Rows, SwigluThenReferenceForwardAndBackward) {
  for (const int n : kRowSizes) {
    Numbers numbers(static_cast<uint64_t>(n));
    const auto size = static_cast<size_t>(n);
    Floats gate = filled(numbers, size, 12.0F);
    Floats up = filled(numbers, size, 2.0F);
    const Floats dout = filled(numbers, size);
    const std::vector<float> g(gate.data(), gate.data() + n);
    const std::vector<float> u(up.data(), up.data() + n);
    Floats out(size);
    swiglu(gate.data(), up.data(), n, out.data());
    swiglu_backward(gate.data(), up.data(), dout.data(), n, gate.data(), up.data());
    for (size_t i = 0; i < size; ++i) {
      const double s = 1 / (1 + std::exp(-static_cast<double>(g[i])));
      const double d = dout.data()[i];
      EXPECT_NEAR(out.data()[i], g[i] * s * u[i], 1e-5 * (1 + std::abs(out.data()[i])));
      EXPECT_NEAR(up.data()[i], d * g[i] * s, 1e-5 * (1 + std::abs(g[i])));
      EXPECT_NEAR(gate.data()[i], d * u[i] * s * (1 + g[i] * (1 - s)), 1e-5 * (1 + std::abs(g[i])));
    }
  }
}

TEST(Rows, RotationThenInverseRestoresIt) {
  Numbers numbers(3);
  Floats x = filled(numbers, 20);
  const std::vector<float> before(x.data(), x.data() + 20);
  float cosines[10];
  float sines[10];
  for (int i = 0; i < 10; ++i) {
    cosines[i] = std::cos(0.3F * static_cast<float>(i));
    sines[i] = std::sin(0.3F * static_cast<float>(i));
  }
  rotate_half(cosines, sines, 20, false, x.data());
  EXPECT_NEAR(x.data()[3], before[3] * cosines[3] - before[13] * sines[3], 1e-6);
  EXPECT_NEAR(x.data()[13], before[13] * cosines[3] + before[3] * sines[3], 1e-6);
  rotate_half(cosines, sines, 20, true, x.data());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(x.data()[i], before[i], 1e-6);
}

TEST(Rows, LogSumExpAndItsGradientThenReference) {
  for (const int n : kRowSizes) {
    Numbers numbers(static_cast<uint64_t>(n));
    Floats x = filled(numbers, static_cast<size_t>(n), 40.0F);
    const std::vector<float> before(x.data(), x.data() + n);
    double sum = 0;
    for (const float value : before) sum += std::exp(static_cast<double>(value));
    const float log_sum = logsumexp(x.data(), n);
    EXPECT_NEAR(log_sum, std::log(sum), 1e-5 * (1 + std::abs(log_sum)));
    softmax_gradient(0.5F, log_sum, n, x.data());
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_NEAR(x.data()[i], -0.5 * std::exp(before[i] - std::log(sum)), 1e-5);
    }
  }
}

// Computes one key-value head with its query heads in f64, forward and backward.
struct AttentionCase {
  int length, head_dim, heads;
};

class AttentionReference {
 public:
  AttentionReference(const AttentionCase& sizes, const Floats& q, const Floats& k, const Floats& v)
      : n_(static_cast<size_t>(sizes.length)),
        width_(static_cast<size_t>(sizes.head_dim)),
        heads_(static_cast<size_t>(sizes.heads)),
        q_(q),
        k_(k),
        v_(v) {}

  // Returns the sum over all outputs of weight * output.
  double weighted(const Floats& weights) const {
    double total = 0;
    for (size_t t = 0; t < n_; ++t) {
      for (size_t h = 0; h < heads_; ++h) {
        const auto out = row(t, h);
        for (size_t i = 0; i < width_; ++i) total += weights.data()[(t * heads_ + h) * width_ + i] * out[i];
      }
    }
    return total;
  }

  std::vector<double> row(size_t t, size_t h) const {
    std::vector<double> out(width_);
    std::vector<double> p(t + 1);
    double sum = 0;
    for (size_t s = 0; s <= t; ++s) {
      double score = 0;
      for (size_t i = 0; i < width_; ++i) {
        score += static_cast<double>(q_.data()[(t * heads_ + h) * width_ + i]) * k_.data()[s * width_ + i];
      }
      sum += p[s] = std::exp(score / std::sqrt(static_cast<double>(width_)));
    }
    for (size_t s = 0; s <= t; ++s) {
      for (size_t i = 0; i < width_; ++i) out[i] += p[s] / sum * v_.data()[s * width_ + i];
    }
    return out;
  }

 private:
  size_t n_, width_, heads_;
  const Floats& q_;
  const Floats& k_;
  const Floats& v_;
};

void check_attention(const AttentionCase& sizes) {
  const auto [n, width, heads] = sizes;
  Numbers numbers(static_cast<uint64_t>(n * 31 + width));
  Floats q = filled(numbers, static_cast<size_t>(n * heads * width), 2.0F);
  Floats k = filled(numbers, static_cast<size_t>(n * width), 2.0F);
  Floats v = filled(numbers, static_cast<size_t>(n * width));
  const Floats dout = filled(numbers, static_cast<size_t>(n * heads * width));
  Floats cache(static_cast<size_t>((n + kKvBlock - 1) / kKvBlock * kv_head_floats(width)));
  std::vector<const float*> blocks;
  for (int t = 0; t < n; ++t) {
    float* block = cache.data() + t / kKvBlock * kv_head_floats(width);
    if (t % kKvBlock == 0) blocks.push_back(block);
    store_kv(k.data() + t * width, v.data() + t * width, width, t, block, block + kKvBlock * width);
  }
  Floats out(static_cast<size_t>(n * heads * width));
  Floats logsumexp(static_cast<size_t>(n * heads));
  Floats scratch(std::max(attention_scratch(width, n), attention_gradient_scratch(width, n)));
  const float scale = 1.0F / std::sqrt(static_cast<float>(width));
  for (int first = 0; first < n * heads; first += tile_rows_max()) {
    AttentionTile tile;
    tile.rows = std::min(tile_rows_max(), n * heads - first);
    for (int i = 0; i < tile.rows; ++i) {
      tile.q[i] = q.data() + (first + i) * width;
      tile.length[i] = (first + i) / heads + 1;
      tile.out[i] = out.data() + (first + i) * width;
      tile.logsumexp[i] = logsumexp.data() + first + i;
    }
    tile.kv = {blocks.data(), 0, static_cast<ptrdiff_t>(kKvBlock) * width};
    tile.head_dim = width;
    tile.scale = scale;
    tile.scratch = scratch.data();
    attend(tile);
  }
  const AttentionReference reference(sizes, q, k, v);
  for (int row = 0; row < n * heads; ++row) {
    const auto expected = reference.row(static_cast<size_t>(row / heads), static_cast<size_t>(row % heads));
    for (int i = 0; i < width; ++i) {
      ASSERT_NEAR(out.data()[row * width + i], expected[static_cast<size_t>(i)], 1e-5) << n << " x " << width;
    }
  }
  Floats dq(q.size());
  Floats dk(k.size());
  Floats dv(v.size());
  AttentionGradient args;
  args.length = n;
  args.head_dim = width;
  args.query_heads = heads;
  args.scale = scale;
  args.q = q.data();
  args.out = out.data();
  args.dout = dout.data();
  args.q_stride = heads * width;
  args.k = k.data();
  args.v = v.data();
  args.kv_stride = width;
  args.logsumexp = logsumexp.data();
  args.logsumexp_stride = heads;
  args.dq = dq.data();
  args.dk = dk.data();
  args.dv = dv.data();
  args.scratch = scratch.data();
  attend_backward(args);
  const auto probe = [&](Floats& values, const Floats& gradient) {
    for (int i = 0; i < 6; ++i) {
      float& value = values.data()[numbers.below(static_cast<int>(values.size()))];
      const float original = value;
      value = original + 0x1p-8F;
      const double high = reference.weighted(dout);
      value = original - 0x1p-8F;
      const double expected = (high - reference.weighted(dout)) * 0x1p+7;
      value = original;
      ASSERT_NEAR(gradient.data()[&value - values.data()], expected, 2e-3 * (1 + std::abs(expected)))
          << n << " x " << width << " x " << heads;
    }
  };
  probe(q, dq);
  probe(k, dk);
  probe(v, dv);
}

TEST(Attention, EdgeSizesThenReferenceForwardAndBackward) {
  for (const AttentionCase& sizes : {AttentionCase{1, 2, 1},
                                     {2, 8, 1},
                                     {15, 16, 2},
                                     {16, 10, 3},
                                     {17, 64, 1},
                                     {48, 16, 1},
                                     {49, 32, 2},
                                     {64, 16, 4},
                                     {65, 20, 1},
                                     {131, 24, 2}}) {
    check_attention(sizes);
  }
}

}  // namespace
}  // namespace tuft::engine::native::test
