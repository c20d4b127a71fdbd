#include "base/sharded_map.h"

#include <string>

#include <gtest/gtest.h>

namespace tuft {
namespace {

TEST(ShardedMap, KeepsAllEntriesWhenItGrows) {
  constexpr int kEntries = 20'000;
  ShardedMap<std::string, int> map;
  EXPECT_EQ(map.find("0"), nullptr);
  int* first = map.emplace("0", 0).first;
  for (int i = 1; i < kEntries; ++i) EXPECT_TRUE(map.emplace(std::to_string(i), i).second);
  EXPECT_EQ(map.size(), static_cast<size_t>(kEntries));
  EXPECT_EQ(map.find("0"), first);
  const auto [known, is_new] = map.emplace("7", 8);
  EXPECT_FALSE(is_new);
  EXPECT_EQ(*known, 7);
  for (int i = 0; i < kEntries; i += 2) EXPECT_TRUE(map.erase(std::to_string(i)));
  EXPECT_FALSE(map.erase("0"));
  EXPECT_EQ(map.size(), static_cast<size_t>(kEntries) / 2);
  EXPECT_EQ(map.find("2"), nullptr);
  ASSERT_NE(map.find("3"), nullptr);
  EXPECT_EQ(*map.find("3"), 3);
}

}  // namespace
}  // namespace tuft
