#include "base/ranking.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace tuft {
namespace {

TEST(Ranking, TheLargestIsFoundAfterEachChange) {
  Ranking<std::string, int> ranking;
  EXPECT_TRUE(ranking.empty());
  ranking.change("a", 0, 3);
  ranking.change("b", 0, 2);
  EXPECT_EQ(ranking.largest(), std::pair(3, std::string("a")));
  ranking.change("b", 2, 5);
  EXPECT_EQ(ranking.largest(), std::pair(5, std::string("b")));
  ranking.change("b", 5, 1);
  EXPECT_EQ(ranking.largest(), std::pair(3, std::string("a")));
}

TEST(Ranking, WhoHasNothingIsNotInIt) {
  Ranking<std::string, int> ranking;
  ranking.change("a", 0, 0);
  EXPECT_TRUE(ranking.empty());
  ranking.change("a", 0, 1);
  ranking.change("a", 1, 0);
  EXPECT_TRUE(ranking.empty());
}

}  // namespace
}  // namespace tuft
