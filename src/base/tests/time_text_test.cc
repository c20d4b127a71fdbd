#include "base/time_text.h"

#include <gtest/gtest.h>

namespace tuft {
namespace {

TEST(TimeText, ParsesItsOwnFormAndOffsets) {
  const Nanos time = 1'784'000'000 * kSecond + 5 * kMicrosecond;
  EXPECT_EQ(parse_time_text(time_text(time)), time);
  EXPECT_EQ(time_text(0), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(parse_time_text("2026-07-13T02:00:00+02:00"), parse_time_text("2026-07-13T00:00:00Z"));
  EXPECT_EQ(parse_time_text("2026-07-12T22:30:00-01:30"), parse_time_text("2026-07-13T00:00:00Z"));
  EXPECT_EQ(parse_time_text("2026-07-13T00:00:00 00:00"), parse_time_text("2026-07-13T00:00:00Z"));
  EXPECT_EQ(parse_day("1970-01-02"), 24 * 3600 * kSecond);
  for (const char* wrong : {"", "2026", "2026-02-30T00:00:00Z", "2026-07-13T24:00:00Z", "2026-07-13T00:00:00",
                            "2026-07-13T00:00:00Zx", "2026-07-13T00:00:00.Z", "-026-07-13T00:00:00Z"}) {
    EXPECT_FALSE(parse_time_text(wrong).has_value()) << wrong;
  }
  EXPECT_FALSE(parse_day("2026-07-13x").has_value());
}

}  // namespace
}  // namespace tuft
