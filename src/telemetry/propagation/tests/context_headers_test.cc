// Tests of tracestate and baggage: valid headers that come in are sent on.
#include "telemetry/propagation/context_headers.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "telemetry/context.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

constexpr const char* kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

using Headers = std::map<std::string, std::string, std::less<>>;

SpanContext read(const Headers& headers, Peer peer = Peer::kOutside) {
  return extract(
      [&](std::string_view key) -> std::string_view {
        const auto found = headers.find(key);
        return found == headers.end() ? std::string_view{} : std::string_view(found->second);
      },
      peer);
}

Headers written(const SpanContext& context) {
  Headers headers;
  inject(context, [&](std::string_view key, std::string value) { headers.emplace(key, std::move(value)); });
  return headers;
}

TEST(Tracestate, ReceivedThenSentWithEveryDescendant) {
  WithCollector collector;
  const SpanContext caller =
      read({{"traceparent", kParent}, {"tracestate", "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE"}});
  const Span parent = get_tracer("tuft.test").start_span("parent", {.parent = caller});
  const Span child = get_tracer("tuft.test").start_span("child", {.parent = parent.context()});
  const Headers out = written(child.context());
  EXPECT_EQ(out.at("tracestate"), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
  EXPECT_EQ(out.at("traceparent"), to_traceparent(child.context()));
  const SpanContext in_worker = read(out, Peer::kOwnProcess);
  EXPECT_EQ(tracestate(in_worker), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
}

TEST(Tracestate, NoneThenNothingIsKeptOrSent) {
  WithCollector collector;
  const SpanContext caller = read({{"traceparent", kParent}});
  EXPECT_EQ(caller.carried, 0u);
  EXPECT_EQ(written(caller).size(), 1u);
  EXPECT_EQ(read({{"tracestate", "a=1"}}).carried, 0u) << "without a traceparent it says nothing";
  EXPECT_EQ(read({{"traceparent", "broken"}, {"tracestate", "a=1"}}).carried, 0u);
}

TEST(Tracestate, MalformedThenIgnoredAndCountedAndTheParentStays) {
  WithCollector collector;
  for (const char* header : {"a", "=1", "A=1", "a=1=2", "a=\x01", "a b=1", "a=1,b", "a=\x7f"}) {
    const SpanContext caller = read({{"traceparent", kParent}, {"tracestate", header}});
    EXPECT_TRUE(caller.valid()) << header;
    EXPECT_EQ(tracestate(caller), "") << header;
  }
  read({{"traceparent", "broken"}});
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("tuft.telemetry.context.malformed", {{"header", "tracestate"}}), 8);
  EXPECT_GE(collector.sum("tuft.telemetry.context.malformed", {{"header", "traceparent"}}), 1);
}

TEST(Tracestate, Over512BytesThenLongMembersGoFirst) {
  const std::string longest = "long=" + std::string(200, 'x');
  std::string header = longest;
  for (int i = 0; i < 20; ++i) header += ",k" + std::to_string(i) + "=" + std::string(20, 'v');
  const auto state = internal::parse_tracestate(header);
  ASSERT_TRUE(state);
  EXPECT_LE(state->size(), 512u);
  EXPECT_EQ(state->find("long="), std::string::npos);
  EXPECT_TRUE(state->starts_with("k0=")) << "the first ones are the newest";
  std::string exactly = "a=" + std::string(250, 'x') + ",b=" + std::string(256, 'y');
  ASSERT_EQ(exactly.size(), 511u);
  EXPECT_EQ(internal::parse_tracestate(exactly), exactly);
  std::string many = "m0=1";
  for (int i = 1; i < 33; ++i) many += ",m" + std::to_string(i) + "=1";
  EXPECT_FALSE(internal::parse_tracestate(many));
  EXPECT_EQ(internal::parse_tracestate(" a=1 ,, b=2,"), "a=1,b=2");
}

TEST(Baggage, EnabledThenSentWithOrWithoutATrace) {
  WithCollector collector({.propagate_baggage = true});
  const char* bag = "userId=Am%C3%A9lie,serverNode=DF:28;prop;other=1";
  const SpanContext caller = read({{"traceparent", kParent}, {"baggage", bag}});
  EXPECT_EQ(written(get_tracer("tuft.test").start_span("a", {.parent = caller}).context()).at("baggage"), bag);
  const SpanContext alone = read({{"baggage", "a=1"}});
  EXPECT_FALSE(alone.valid());
  const Span root = get_tracer("tuft.test").start_span("b", {.parent = alone});
  EXPECT_EQ(written(root.context()).at("baggage"), "a=1");
  for (const char* broken : {"a", "a b=1", "a=\"1\"", "a=1,=2"}) EXPECT_EQ(baggage(read({{"baggage", broken}})), "");
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("tuft.telemetry.context.malformed", {{"header", "baggage"}}), 4);
}

TEST(Baggage, NotEnabledThenDropped) {
  WithCollector collector;
  EXPECT_EQ(read({{"traceparent", kParent}, {"baggage", "a=1"}}).carried, 0u);
}

TEST(Baggage, OverTheLimitThenTheFirstMembersAreKept) {
  std::string header = "first=1";
  for (int i = 0; i < 100; ++i) header += ",k" + std::to_string(i) + "=" + std::string(100, 'v');
  const auto bag = internal::parse_baggage(header);
  ASSERT_TRUE(bag);
  EXPECT_LE(bag->size(), 8192u);
  EXPECT_TRUE(bag->starts_with("first=1,k0="));
}

TEST(Propagators, NoneThenOnlyOurOwnHeadersAreRead) {
  ::setenv("OTEL_PROPAGATORS", "none", 1);
  {
    WithCollector collector;
    EXPECT_FALSE(read({{"traceparent", kParent}, {"tracestate", "a=1"}}).valid());
    EXPECT_TRUE(read({{"traceparent", kParent}}, Peer::kOwnProcess).valid());
  }
  ::unsetenv("OTEL_PROPAGATORS");
}

TEST(CarriedHeaders, ManyThenTheNewestAreKept) {
  const uint32_t first = internal::carry_headers({.tracestate = "a=1"});
  EXPECT_EQ(internal::carried_headers(first).tracestate, "a=1");
  uint32_t last = 0;
  for (int i = 0; i < 5000; ++i) last = internal::carry_headers({.tracestate = "n=" + std::to_string(i)});
  EXPECT_EQ(internal::carried_headers(last).tracestate, "n=4999");
  EXPECT_EQ(internal::carried_headers(first).tracestate, "");
  // The number of bytes is limited too.
  const uint32_t before = internal::carry_headers({.baggage = "small"});
  for (int i = 0; i < 1100; ++i) last = internal::carry_headers({.baggage = std::string(8000, 'x')});
  EXPECT_EQ(internal::carried_headers(before).baggage, "");
  EXPECT_EQ(internal::carried_headers(last).baggage.size(), 8000u);
  EXPECT_EQ(internal::carry_headers({}), 0u);
  EXPECT_EQ(internal::carried_headers(12345678).tracestate, "");
}

}  // namespace
}  // namespace tuft::telemetry
