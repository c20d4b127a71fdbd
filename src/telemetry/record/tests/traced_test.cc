#include "telemetry/traced.h"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/result.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::telemetry {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::text_of;

SpanContext current_inside;

int plain_function(int value) {
  TUFT_TRACED_FUNCTION({"value", value}, {"kind", "test"});
  current_inside = current_context();
  traced_function.span().set_attribute("late", true);
  return value + 1;
}

Status failing_function(bool fail) {
  TUFT_TRACED_FUNCTION();
  return traced_function.returns(fail ? Status(not_found("no such thing", "missing")) : Status());
}

void throwing_function() {
  TUFT_TRACED_FUNCTION();
  throw std::runtime_error("secret");
}

class Cache {
 public:
  TUFT_TRACED_CLASS("acme.cache")
  int find(int key) {
    TUFT_TRACED_FUNCTION();
    return key;
  }
};

TEST(Traced, FunctionThenASpanWithItsPlaceIsCurrent) {
  WithCollector collector;
  EXPECT_EQ(plain_function(4), 5);
  EXPECT_FALSE(current_context().valid());
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("plain_function");
  ASSERT_TRUE(span);
  EXPECT_EQ(span->span_id, current_inside.span_id_hex());
  EXPECT_EQ(span->scope, "tuft.traced");
  EXPECT_EQ(text_of(span->attributes, "value"), "4");
  EXPECT_EQ(text_of(span->attributes, "kind"), "test");
  EXPECT_EQ(text_of(span->attributes, "late"), "true");
  EXPECT_THAT(text_of(span->attributes, "code.function.name"), HasSubstr("plain_function"));
  EXPECT_THAT(text_of(span->attributes, "code.file.path"), EndsWith("traced_test.cc"));
  EXPECT_NE(text_of(span->attributes, "code.line.number"), "");
  EXPECT_FALSE(span->error);
}

TEST(Traced, ReturnedErrorThenStatusError) {
  WithCollector collector;
  EXPECT_FALSE(failing_function(true).ok());
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("failing_function");
  ASSERT_TRUE(span);
  EXPECT_TRUE(span->error);
  EXPECT_EQ(span->status_message, "no such thing");
}

TEST(Traced, ExceptionThenStatusErrorAndItGoesOn) {
  WithCollector collector;
  EXPECT_THROW(throwing_function(), std::runtime_error);
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("throwing_function");
  ASSERT_TRUE(span);
  EXPECT_TRUE(span->error);
}

TEST(Traced, ClassThenItsTracer) {
  WithCollector collector;
  EXPECT_EQ(Cache().find(3), 3);
  ASSERT_TRUE(collector.flush());
  ASSERT_TRUE(collector.span("find"));
  EXPECT_EQ(collector.span("find")->scope, "acme.cache");
}

TEST(Traced, CallablesThenResultsErrorsAndExceptionsPass) {
  WithCollector collector;
  const Tracer tracer = get_tracer("acme");
  std::string text = "x";
  auto reference = traced(tracer, "reference", [&](const std::string& more) -> std::string& { return text += more; });
  EXPECT_EQ(&reference("y"), &text);
  EXPECT_EQ(text, "xy");
  auto nothing = traced(tracer, "nothing", [] {});
  nothing();
  auto moved = traced(tracer, "moved", [](std::unique_ptr<int> in) { return in; });
  EXPECT_EQ(*moved(std::make_unique<int>(3)), 3);
  auto failing = traced(tracer, "failing", [](int n) -> Result<int> {
    if (n < 0) return invalid_argument("negative");
    return n;
  });
  EXPECT_EQ(*failing(2), 2);
  EXPECT_EQ(failing(-2).error().message, "negative");
  auto throwing = traced(tracer, "throwing", [](int n) -> int { throw std::out_of_range("n" + std::to_string(n)); });
  EXPECT_THROW(throwing(3), std::out_of_range);
  auto odd = traced(tracer, "odd", [] { throw 7; });  // NOLINT(hicpp-exception-baseclass)
  EXPECT_THROW(odd(), int);
  ASSERT_TRUE(collector.flush());
  for (const char* good : {"reference", "nothing", "moved"}) {
    ASSERT_TRUE(collector.span(good)) << good;
    EXPECT_FALSE(collector.span(good)->error) << good;
  }
  size_t failed = 0;
  for (const auto& span : collector.receiver.spans()) failed += span.name == "failing" && span.error ? 1 : 0;
  EXPECT_EQ(failed, 1U);
  EXPECT_TRUE(collector.span("throwing")->error);
  EXPECT_EQ(collector.span("throwing")->status_message, "n3");
  EXPECT_TRUE(collector.span("odd")->error);
}

TEST(Traced, TelemetryOffThenTheFunctionAlone) {
  EXPECT_EQ(plain_function(1), 2);
  EXPECT_FALSE(current_inside.valid());
  EXPECT_EQ(traced(get_tracer("acme"), "n", [](int n) { return n; })(3), 3);
}

}  // namespace
}  // namespace tuft::telemetry
