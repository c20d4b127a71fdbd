#include "worker/time_share.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

namespace tuft::worker {
namespace {

using Turn = TimeShare::Turn;

struct Split {
  Nanos training = 0;
  Nanos sampling = 0;
  Nanos training_gap = 0;  // longest time without it
  Nanos sampling_gap = 0;
};

// Both have work all the time; a pass and a step take as long as given.
Split split(TimeShare& share, Nanos pass, Nanos step, Nanos total) {
  Split result;
  Nanos training_waits = 0;
  Nanos sampling_waits = 0;
  while (result.training + result.sampling < total) {
    const Turn turn = share.next(true, true);
    const Nanos took = turn == Turn::kFirst ? pass : step;
    share.spent(turn, took);
    (turn == Turn::kFirst ? result.training : result.sampling) += took;
    training_waits = turn == Turn::kFirst ? 0 : training_waits + took;
    sampling_waits = turn == Turn::kSecond ? 0 : sampling_waits + took;
    result.training_gap = std::max(result.training_gap, training_waits);
    result.sampling_gap = std::max(result.sampling_gap, sampling_waits);
  }
  return result;
}

TEST(TimeShare, BothHaveWorkThenEachGetsItsShareWhateverItsPiecesTake) {
  for (const double wanted : {0.1, 0.5, 0.8}) {
    for (const auto& [pass, step] : {std::pair<Nanos, Nanos>{300, 20}, {20, 300}, {7, 7}}) {
      TimeShare share(wanted, 10 * kMillisecond);
      const Split got = split(share, pass * 1000, step * 1000, kSecond);
      EXPECT_NEAR(static_cast<double>(got.training) / static_cast<double>(got.training + got.sampling), wanted, 0.01);
    }
  }
}

TEST(TimeShare, NeitherWaitsLongerThanTheDebtAndOnePiece) {
  TimeShare share(0.5, kSecond);
  const Split got = split(share, 10 * kSecond, 20 * kMillisecond, 100 * kSecond);
  EXPECT_LE(got.training_gap, kSecond + 20 * kMillisecond);
  EXPECT_LE(got.sampling_gap, 10 * kSecond);
  TimeShare other(0.5, kSecond);
  EXPECT_LE(split(other, 20 * kMillisecond, 10 * kSecond, 100 * kSecond).sampling_gap, kSecond + 20 * kMillisecond);
}

TEST(TimeShare, WhoHadNoWorkOwesNothing) {
  TimeShare share(0.5, kSecond);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(share.next(true, false), Turn::kFirst);
    share.spent(Turn::kFirst, kSecond);
  }
  share.spent(share.next(false, true), kMillisecond);
  EXPECT_EQ(share.next(true, true), Turn::kFirst) << "it waited while a step ran";
}

}  // namespace
}  // namespace tuft::worker
