#include "engine/sample/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace tuft::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Lets the kernels use the instruction sets up to one of them, until the end of the test.
class OnTargets {
 public:
  ~OnTargets() { use(0); }
  // Lower bits are wider instruction sets. 0: what the processor has.
  void use(int64_t widest) {
    hwy::SetSupportedTargetsForTest(0);
    if (widest != 0) hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~(widest - 1));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  // The widest first.
  static std::vector<int64_t> all() {
    std::vector<int64_t> found;
    for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) found.push_back(left & -left);
    return found;
  }
};

// What the kernels make of a row.
struct Computed {
  float maximum;
  std::vector<float> weights;
  std::vector<double> block_sums;
  std::vector<size_t> found;

  Computed(std::span<const float> row, float scale)
      : maximum(row_maximum(row)), weights(row.size()), block_sums((row.size() + kRowBlock - 1) / kRowBlock) {
    row_weights(row, maximum, scale, weights, block_sums);
    for (const float least : {maximum, 0.5F * maximum, 0.0F, -kInfinity, kInfinity}) {
      for (const size_t begin : {size_t{0}, row.size() / 3, row.size()})
        found.push_back(find_at_least(row, begin, least));
    }
  }
};

template <typename T>
bool same_bits(std::span<const T> left, std::span<const T> right) {
  return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size_bytes()) == 0;
}

// Rows with masked tokens, both zeros, tiny and huge values, and one whose weights reach exp(-87).
std::vector<float> extreme_row(std::mt19937& random, size_t size) {
  std::vector<float> row(size);
  const float spread = std::pow(10.0F, static_cast<float>(random() % 6) - 2.0F);
  const auto kind = random() % 4;
  for (float& value : row) {
    value = spread * (static_cast<float>(random() % 100'000) * 1e-5F - 0.5F);
    if (kind == 1 && random() % 20 == 0) value = -kInfinity;
    if (kind == 2) value = random() % 2 == 0 ? 0.0F : -0.0F;
    if (kind == 3 && random() % 20 == 0) value *= random() % 2 == 0 ? 1e-38F : 1e30F;
  }
  row[random() % size] = kind == 2 ? 0.0F : spread;
  return row;
}

TEST(RowKernels, EveryInstructionSetGivesTheSameBits) {
  OnTargets targets;
  const std::vector<int64_t> all = OnTargets::all();
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> row = extreme_row(random, 1 + random() % (round % 3 == 0 ? 70 : 5000));
    const float scale = round % 2 == 0 ? 1.0F : std::pow(10.0F, static_cast<float>(random() % 7) - 3.0F);
    targets.use(all.front());
    const Computed widest(row, scale);
    for (const int64_t target : all) {
      targets.use(target);
      const Computed other(row, scale);
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", round " + std::to_string(round));
      ASSERT_TRUE(same_bits<float>({&other.maximum, 1}, {&widest.maximum, 1}));
      ASSERT_TRUE(same_bits<float>(other.weights, widest.weights));
      ASSERT_TRUE(same_bits<double>(other.block_sums, widest.block_sums));
      ASSERT_EQ(other.found, widest.found);
    }
  }
}

// Rows of all lengths up to some vectors, with the value in every place.
TEST(RowKernels, EveryInstructionSetFindsAValueInEveryPlace) {
  OnTargets targets;
  for (const int64_t target : OnTargets::all()) {
    targets.use(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (size_t size = 1; size <= 70; ++size) {
      for (size_t place = 0; place < size; ++place) {
        std::vector<float> row(size, -1.0F);
        row[place] = 2.0F;
        ASSERT_EQ(row_maximum(row), 2.0F);
        ASSERT_EQ(find_at_least(row, 0, 2.0F), place);
        ASSERT_EQ(find_at_least(row, place, 2.0F), place);
        ASSERT_EQ(find_at_least(row, place + 1, 2.0F), size);
        row[place] = kNan;
        ASSERT_TRUE(std::isnan(row_maximum(row)));
        ASSERT_EQ(find_at_least(row, 0, 2.0F), size);
      }
    }
    EXPECT_EQ(row_maximum({}), -kInfinity);
    EXPECT_FALSE(std::signbit(row_maximum(std::vector<float>{-0.0F})));
  }
}

TEST(RowKernels, WeightsAreExponentials) {
  std::vector<float> row;
  for (int i = 0; i <= 200'000; ++i) row.push_back(-static_cast<float>(i) * 5e-4F);
  const Computed computed(row, 1.0F);
  for (size_t i = 0; i < row.size(); ++i) {
    const double exact = std::exp(std::max(-87.0, static_cast<double>(row[i])));
    ASSERT_NEAR(static_cast<double>(computed.weights[i]) / exact, 1.0, 3e-7) << row[i];
  }
}

}  // namespace
}  // namespace tuft::engine
