#include "base/json_shape.h"

#include <gtest/gtest.h>

namespace tuft {
namespace {

TEST(JsonShape, CountsWhatAParserWouldMake) {
  const JsonShape shape = json_shape(R"({"a": [1, 2, {"b": {}}], "c": null})");
  EXPECT_EQ(shape.containers, 4);
  EXPECT_EQ(shape.members, 3);
  EXPECT_GE(shape.values, 7);
  EXPECT_EQ(shape.depth, 4);
}

TEST(JsonShape, TextInStringsIsNotCounted) {
  const JsonShape shape = json_shape(R"(["[{,:\"[[", "\\", "]"])");
  EXPECT_EQ(shape.containers, 1);
  EXPECT_EQ(shape.members, 0);
  EXPECT_EQ(shape.depth, 1);
}

TEST(JsonShape, DamagedTextIsRead) {
  for (const char* text : {"", "\"", "\"\\", "]]]]", "[[[["}) EXPECT_LE(json_shape(text).containers, 4) << text;
}

}  // namespace
}  // namespace tuft
