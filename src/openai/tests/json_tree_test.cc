#include "openai/json_tree.h"

#include <ctime>
#include <string>

#include <gtest/gtest.h>

namespace tuft::openai {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string many_members(int count, int repeated) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  for (int i = 0; i < repeated; ++i) text += "\"k" + std::to_string(i) + "\":-1,";
  text.back() = '}';
  return text;
}

TEST(JsonTree, IsTheTreeOfNlohmannsParser) {
  for (const char* text :
       {"null", "true", " [1, -2, 3.5, 1e300, 18446744073709551615, \"a\\u00e9\\n\"] ", "{}", "[]", "[[],{}]",
        R"({"z": 1, "a": {"y": [{"b": 2, "a": 3}], "x": null}, "m": "t"})", R"({"a": 1, "b": 2, "a": {"c": 3}})",
        R"({"a": {"x": 1, "x": 2}, "a": [1], "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "b": 9})"}) {
    const auto json = parse_json(text);
    ASSERT_TRUE(json) << text;
    EXPECT_EQ(*json, Json::parse(text)) << text;
    EXPECT_EQ(json->dump(), Json::parse(text).dump()) << text;
  }
}

TEST(JsonTree, WhatIsNotJsonIsNothing) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\"}", "{\"a\":1,}", "1 2", "\"\xff\"", "1e999", "nul", "{a:1}"}) {
    EXPECT_FALSE(parse_json(text)) << text;
  }
}

// With a search for each name, this takes minutes.
TEST(JsonTree, ManyMembersTakeLinearTimeAndKeepTheirOrder) {
  constexpr int kMembers = 200'000;
  const std::string text = many_members(kMembers, 1000);
  const double begun = cpu_seconds();
  const auto json = parse_json(text);
  EXPECT_LT(cpu_seconds() - begun, 10);
  ASSERT_TRUE(json);
  ASSERT_EQ(json->size(), size_t{kMembers});
  int number = 0;
  for (const auto& [key, value] : json->items()) {
    EXPECT_EQ(key, "k" + std::to_string(number));
    EXPECT_EQ(value, number < 1000 ? -1 : number);
    ++number;
  }
}

}  // namespace
}  // namespace tuft::openai
