#include "telemetry/context.h"

#include <map>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace tuft::telemetry {
namespace {

constexpr const char* kGood = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Traceparent, WellFormedHeaderThenItsIds) {
  const SpanContext context = from_traceparent(kGood);
  EXPECT_TRUE(context.valid());
  EXPECT_TRUE(context.sampled());
  EXPECT_EQ(context.trace_id_hex(), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(context.span_id_hex(), "00f067aa0ba902b7");
  EXPECT_EQ(to_traceparent(context), kGood);
}

TEST(Traceparent, UnsampledFlagThenNotSampled) {
  const SpanContext context = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
  EXPECT_TRUE(context.valid());
  EXPECT_FALSE(context.sampled());
}

TEST(Traceparent, UnknownFlagBitsThenOnlySampledIsPassedOn) {
  const SpanContext context = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff");
  EXPECT_EQ(to_traceparent(context), kGood);
}

struct HeaderCase {
  const char* what;
  std::string header;
  bool valid;
};

class TraceparentTable : public ::testing::TestWithParam<HeaderCase> {};

TEST_P(TraceparentTable, HeaderThenValidOrNot) {
  EXPECT_EQ(from_traceparent(GetParam().header).valid(), GetParam().valid) << GetParam().what;
}

INSTANTIATE_TEST_SUITE_P(
    W3c, TraceparentTable,
    ::testing::Values(
        HeaderCase{"empty", "", false}, HeaderCase{"garbage", "hello", false},
        HeaderCase{"too short", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", false},
        HeaderCase{"version 00 too long", std::string(kGood) + "-00", false},
        HeaderCase{"version 00 with a tail", std::string(kGood) + "x", false},
        HeaderCase{"upper case", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false},
        HeaderCase{"upper-case span", "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01", false},
        HeaderCase{"zero trace", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
        HeaderCase{"zero span", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false},
        HeaderCase{"version ff", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
        HeaderCase{"version no hex", "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
        HeaderCase{"no dash", "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
        HeaderCase{"flags no hex", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g", false},
        HeaderCase{"blank in front", " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
        HeaderCase{"later version", "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true},
        HeaderCase{"later version with more", "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what", true},
        HeaderCase{"later version, no dash", "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01what", false}));

TEST(Context, InjectedThenExtracted) {
  const SpanContext context = from_traceparent(kGood);
  std::map<std::string, std::string> headers;
  inject(context, [&](std::string_view key, std::string value) { headers[std::string(key)] = std::move(value); });
  EXPECT_EQ(headers.size(), 1u);
  const SpanContext read = extract([&](std::string_view key) -> std::string_view {
    const auto found = headers.find(std::string(key));
    return found == headers.end() ? std::string_view{} : std::string_view(found->second);
  });
  EXPECT_EQ(read, context);
}

TEST(Context, InvalidThenNothingIsInjected) {
  int calls = 0;
  inject(SpanContext{}, [&](std::string_view, const std::string&) { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(Context, ScopesNestAndBelongToTheirThread) {
  const SpanContext outer = from_traceparent(kGood);
  SpanContext inner = outer;
  inner.span_id = 7;
  EXPECT_FALSE(current_context().valid());
  {
    const ContextScope outer_scope(outer);
    {
      const ContextScope inner_scope(inner);
      EXPECT_EQ(current_context(), inner);
      std::thread([] { EXPECT_FALSE(current_context().valid()); }).join();
    }
    EXPECT_EQ(current_context(), outer);
  }
  EXPECT_FALSE(current_context().valid());
}

}  // namespace
}  // namespace tuft::telemetry
