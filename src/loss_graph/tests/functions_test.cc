#include "loss_graph/functions.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace tuft::loss_graph {
namespace {

void expect_fmod(double a, double b) {
  const double expected = std::fmod(a, b);
  const double found = find_binary("fmod")->value(a, b);
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << a << " " << b;
    return;
  }
  EXPECT_EQ(std::bit_cast<uint64_t>(found), std::bit_cast<uint64_t>(expected)) << a << " " << b;
}

TEST(Functions, FmodIsThatOfTheLibraryForAllOperands) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) expect_fmod(std::bit_cast<double>(random()), std::bit_cast<double>(random()));
}

TEST(Functions, FmodIsThatOfTheLibraryAtTheEndsOfTheRange) {
  using Limits = std::numeric_limits<double>;
  std::vector<double> ends = {0.0,
                              1.0,
                              3.0,
                              0x1p53,
                              0x1p64,
                              0x1.8p64,
                              Limits::max(),
                              Limits::min(),
                              Limits::denorm_min(),
                              3 * Limits::denorm_min(),
                              Limits::infinity(),
                              Limits::quiet_NaN()};
  std::mt19937_64 random(8);
  for (int i = 0; i < 200; ++i) {
    ends.push_back(std::ldexp(static_cast<double>(random()), 1024 - 64) * 0.999);  // the largest
    ends.push_back(std::bit_cast<double>(random() >> 12 >> (i % 52)));             // subnormal
  }
  for (const double a : ends) {
    for (const double b : ends) {
      expect_fmod(a, b);
      expect_fmod(-a, b);
      expect_fmod(a, -b);
    }
  }
}

}  // namespace
}  // namespace tuft::loss_graph
