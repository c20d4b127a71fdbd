// Compares dimuon with a float64 reference, and its state with what leaves and returns.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/native/ops/orthogonalize.h"
#include "engine/native/tests/reference_model.h"

namespace tuft::engine::native::test {
namespace {

using Matrix = std::vector<double>;  // row-major

double norm_of(const Matrix& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// Returns left [n, k] times right [k, m].
Matrix product(const Matrix& left, const Matrix& right, size_t n, size_t k, size_t m) {
  Matrix out(n * m);
  for (size_t i = 0; i < n; ++i) {
    for (size_t l = 0; l < k; ++l) {
      for (size_t j = 0; j < m; ++j) out[i * m + j] += left[i * k + l] * right[l * m + j];
    }
  }
  return out;
}

Matrix transposed(const Matrix& x, size_t rows, size_t columns) {
  Matrix out(x.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) out[j * rows + i] = x[i * columns + j];
  }
  return out;
}

// Five steps x = a x + b (x x^T) x + c (x x^T)^2 x from x / |x|, scaled to the norm sqrt(min(rows, columns)).
Matrix reference(Matrix x, size_t rows, size_t columns) {
  const double norm = norm_of(x);
  if (norm == 0) return x;
  for (double& value : x) value /= norm;
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = product(x, transposed(x, rows, columns), rows, columns, rows);
    const Matrix cubic = product(gram, x, rows, rows, columns);
    const Matrix quintic = product(gram, cubic, rows, rows, columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] - 4.7750 * cubic[i] + 2.0315 * quintic[i];
  }
  const double scale = std::sqrt(static_cast<double>(std::min(rows, columns))) / norm_of(x);
  for (double& value : x) value *= scale;
  return x;
}

std::vector<float> random_values(size_t count, uint64_t seed) {
  std::vector<float> out;
  uint64_t state = seed;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    out.push_back(static_cast<float>(state >> 40) * 0x1.0p-24F - 0.5F);
  }
  return out;
}

TEST(Orthogonalize, MatchesTheFloat64Reference) {
  const std::pair<int, int> shapes[] = {{1, 7}, {4, 4}, {8, 100}, {16, 300}, {33, 513}, {12, 5}, {64, 1000}};
  for (const auto& [rows, columns] : shapes) {
    const auto r = static_cast<size_t>(rows);
    const auto n = static_cast<size_t>(columns);
    std::vector<float> x = random_values(r * n, r * 1000 + n);
    const Matrix expected = reference(Matrix(x.begin(), x.end()), r, n);
    OrthogonalizeMemory memory;
    memory.reserve(rows);
    orthogonalize(rows, columns, x.data(), memory);
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) error += std::pow(static_cast<double>(x[i]) - expected[i], 2);
    EXPECT_LT(std::sqrt(error), 2e-5 * norm_of(expected)) << rows << " x " << columns;
    EXPECT_NEAR(norm_of(Matrix(x.begin(), x.end())), std::sqrt(std::min(rows, columns)), 1e-4)
        << rows << " x " << columns;
  }
}

TEST(Orthogonalize, SizeOfTheInputDoesNotMatterAndZeroStaysZero) {
  OrthogonalizeMemory memory;
  memory.reserve(8);
  const std::vector<float> start = random_values(8 * 40, 3);
  std::vector<float> small = start;
  std::vector<float> large = start;
  for (float& value : small) value *= 0x1.0p-60F;
  for (float& value : large) value *= 0x1.0p60F;
  orthogonalize(8, 40, small.data(), memory);
  orthogonalize(8, 40, large.data(), memory);
  EXPECT_EQ(small, large);
  std::vector<float> zero(8 * 40, 0.0F);
  orthogonalize(8, 40, zero.data(), memory);
  EXPECT_EQ(zero, std::vector<float>(8 * 40, 0.0F));
}

class Dimuon : public ::testing::Test {
 protected:
  Dimuon() {
    NativeOptions options;
    options.threads = 2;
    engine_ = make_engine(spec_, MemoryTensors(spec_, 7), options).value();
    add("a", 4, Optimizer::kDimuon);
  }

  void add(const std::string& id, int rank, Optimizer optimizer) {
    AdapterState state = random_adapter(spec_, rank, 1);
    state.optimizer = optimizer;
    ASSERT_TRUE(engine_->adapters().create(AdapterId(id), state).ok());
  }
  void train(const std::string& id) {
    Pack pack;
    pack.tokens = random_tokens(spec_, 20, 5);
    pack.segments.push_back({AdapterId(id), 0, 20});
    for (int i = 0; i < 19; ++i) pack.targets.push_back({i, pack.tokens[static_cast<size_t>(i) + 1]});
    std::vector<float> logprobs(pack.targets.size());
    ASSERT_TRUE(engine_->training().forward(pack, true, logprobs).ok());
    ASSERT_TRUE(engine_->training().backward(std::vector<float>(pack.targets.size(), -1.0F)).ok());
  }
  Result<OptimReport> step(const std::string& id, const OptimParams& params) {
    const AdapterStep one{AdapterId(id), params};
    return std::move(engine_->training().optim_steps({&one, 1}).front());
  }
  AdapterState state(const std::string& id) { return engine_->adapters().export_state(AdapterId(id), true).value(); }

  // Compares one matrix [rows, columns], whose short side is the rank, with the formulas.
  static void expect_stepped(const std::vector<float>& before, const std::vector<float>& after,
                             const std::vector<float>& gradient, const std::vector<float>& momentum, size_t rows,
                             const DimuonParams& params, double clip, double size) {
    const size_t columns = before.size() / rows;
    Matrix mean(before.size());
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] = (1 - params.beta1) * clip * static_cast<double>(gradient[i]);
      ASSERT_NEAR(momentum[i], mean[i], 1e-6 * (std::fabs(mean[i]) + 1e-6));
    }
    const Matrix direction = reference(mean, rows, columns);
    double error = 0;
    double moved = 0;
    for (size_t i = 0; i < mean.size(); ++i) {
      const double expected = static_cast<double>(before[i]) - size * direction[i];
      error += std::pow(static_cast<double>(after[i]) - expected, 2);
      moved += std::pow(size * direction[i], 2);
    }
    EXPECT_LE(std::sqrt(error), 2e-3 * std::sqrt(moved) + 1e-7);
  }

  const ModelSpec spec_ = tiny_spec(Family::kQwen3, true);
  std::unique_ptr<Engine> engine_;
};

TEST_F(Dimuon, FirstStepMatchesTheFloat64Reference) {
  const DimuonParams params{.learning_rate = 0.02, .beta1 = 0.9, .grad_clip_norm = 0.5};
  const AdapterState before = state("a");
  train("a");
  const std::vector<LoraTensor> gradients = engine_->adapters().gradients(AdapterId("a")).value();
  const auto report = step("a", params);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->step, 1);
  EXPECT_TRUE(report->clipped);
  const AdapterState after = state("a");
  EXPECT_EQ(after.optimizer, Optimizer::kDimuon);
  EXPECT_TRUE(after.moments.second.empty());
  const double clip = 0.5 / (report->grad_norm + 1e-6);
  const double size = 0.02 * std::pow(4.0 / 32.0, -0.175);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const std::vector<float>& m = after.moments.first[i].a;
    expect_stepped(before.tensors[i].a, after.tensors[i].a, gradients[i].a, m, 4, params, clip, size);
    // B is [out, rank]; the orthogonal factor of the transpose is the transpose.
    const size_t out = gradients[i].b.size() / 4;
    const auto turned = [&](const std::vector<float>& x) {
      std::vector<float> to(x.size());
      for (size_t row = 0; row < out; ++row) {
        for (size_t column = 0; column < 4; ++column) to[column * out + row] = x[row * 4 + column];
      }
      return to;
    };
    expect_stepped(turned(before.tensors[i].b), turned(after.tensors[i].b), turned(gradients[i].b),
                   turned(after.moments.first[i].b), 4, params, clip, size);
  }
}

TEST_F(Dimuon, MomentumIsAnAverageOfTheGradients) {
  const DimuonParams still{.learning_rate = 0.0, .beta1 = 0.75};
  train("a");
  const float gradient = engine_->adapters().gradients(AdapterId("a")).value()[0].a[0];
  double expected = 0;
  for (int i = 1; i <= 3; ++i) {
    if (i > 1) train("a");
    ASSERT_EQ(step("a", still)->step, i);
    expected = 0.75 * expected + 0.25 * static_cast<double>(gradient);
    EXPECT_NEAR(state("a").moments.first[0].a[0], expected, 1e-6 * std::fabs(expected));
  }
}

TEST_F(Dimuon, StepsTogetherThenTheSameBitsAsAlone) {
  add("b", 4, Optimizer::kDimuon);
  add("adam", 8, Optimizer::kAdamW);
  add("adam alone", 8, Optimizer::kAdamW);
  for (const char* id : {"a", "b", "adam", "adam alone"}) train(id);
  const DimuonParams params{.learning_rate = 0.02};
  const std::vector<AdapterStep> together = {{AdapterId("a"), params}, {AdapterId("adam"), AdamParams{}}};
  for (const auto& report : engine_->training().optim_steps(together)) ASSERT_TRUE(report.ok());
  ASSERT_TRUE(step("b", params).ok());
  ASSERT_TRUE(step("adam alone", AdamParams{}).ok());
  for (const auto& [left, right] : {std::pair("a", "b"), std::pair("adam", "adam alone")}) {
    const AdapterState one = state(left);
    const AdapterState other = state(right);
    for (size_t i = 0; i < one.tensors.size(); ++i) {
      EXPECT_EQ(one.tensors[i].a, other.tensors[i].a);
      EXPECT_EQ(one.tensors[i].b, other.tensors[i].b);
      EXPECT_EQ(one.moments.first[i].a, other.moments.first[i].a);
    }
  }
}

TEST_F(Dimuon, LeavesAndReturnsWithItsMomentum) {
  train("a");
  ASSERT_TRUE(step("a", DimuonParams{}).ok());
  const AdapterState stayed = state("a");
  const int64_t bytes = engine_->adapters().memory().optimizer;
  EXPECT_EQ(2 * bytes, engine_->adapters().memory().weights) << "one matrix per LoRA matrix";
  const AdapterState taken = engine_->adapters().take(AdapterId("a")).value();
  ASSERT_TRUE(engine_->adapters().create(AdapterId("a"), taken).ok());
  const AdapterState back = state("a");
  EXPECT_EQ(back.optimizer, Optimizer::kDimuon);
  EXPECT_EQ(back.moments.step, 1);
  for (size_t i = 0; i < back.tensors.size(); ++i) EXPECT_EQ(back.moments.first[i].b, stayed.moments.first[i].b);
}

TEST_F(Dimuon, OtherOptimizersAreRefusedAndNamed) {
  add("adam", 4, Optimizer::kAdamW);
  const auto message = [](const auto& result) { return result.ok() ? std::string() : result.error().message; };
  EXPECT_EQ(message(step("a", AdamParams{})), "this model trains with dimuon; the step has the parameters of adamw");
  EXPECT_EQ(message(step("adam", DimuonParams{})),
            "this model trains with adamw; the step has the parameters of dimuon");
  const AdapterState with_momentum = state("a");
  EXPECT_NE(message(engine_->adapters().import_state(AdapterId("adam"), with_momentum))
                .find("state is of dimuon, and this model trains with adamw"),
            std::string::npos);
  AdapterState weights = with_momentum;
  weights.has_optimizer = false;
  weights.moments = {};
  ASSERT_TRUE(engine_->adapters().import_state(AdapterId("adam"), weights).ok());
  EXPECT_EQ(state("adam").optimizer, Optimizer::kAdamW) << "weights do not bring an optimizer";
  const auto replace = [&](const AdapterState& with) {
    return engine_->adapters().replace(AdapterId("adam"), engine_->adapters().make(with).value());
  };
  EXPECT_NE(message(replace(with_momentum)).find("state is of dimuon, and this model trains with adamw"),
            std::string::npos);
  ASSERT_TRUE(replace(weights).ok());
  EXPECT_EQ(state("adam").optimizer, Optimizer::kAdamW);
}

}  // namespace
}  // namespace tuft::engine::native::test
