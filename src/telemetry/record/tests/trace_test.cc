#include "telemetry/trace.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "telemetry/record/recorder.h"
#include "telemetry/record/share_keys.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::telemetry {
namespace {

using testing::text_of;

TEST(Span, EverythingSetThenAllOfItArrives) {
  WithCollector collector({.resource_attributes = {{"deployment.environment", "test"}}});
  const Tracer tracer = get_tracer("tuft.my_module");
  SpanContext parent_context;
  SpanContext child_context;
  SpanContext linked;
  {
    const Span other = tracer.start_span("other");
    linked = other.context();
    Span parent = tracer.start_span("parent", {.kind = SpanKind::kServer});
    parent_context = parent.context();
    const ContextScope scope(parent.context());
    Span child = tracer.start_span(
        "child", {.attributes = {{"tuft.session_id", "s-1"}, {"tuft.backward", true}}, .link = linked});
    child_context = child.context();
    child.set_attribute("tuft.data_count", 3);
    child.set_attribute("tuft.loss", 0.5);
    child.set_attribute("tuft.session_id", std::string("s-2"));
    child.add_event("first_token", {{"tokens", 1}});
  }
  ASSERT_TRUE(collector.flush());
  const auto child = collector.span("child");
  ASSERT_TRUE(child);
  EXPECT_EQ(child->trace_id, parent_context.trace_id_hex());
  EXPECT_EQ(child->span_id, child_context.span_id_hex());
  EXPECT_EQ(child->parent_span_id, parent_context.span_id_hex());
  EXPECT_EQ(child->scope, "tuft.my_module");
  EXPECT_EQ(child->kind, 1);
  EXPECT_EQ(text_of(child->attributes, "tuft.session_id"), "s-2");
  EXPECT_EQ(child->attribute_count, 4u) << "a key set twice must not be sent twice";
  EXPECT_EQ(std::get<bool>(child->attributes.at("tuft.backward")), true);
  EXPECT_EQ(std::get<int64_t>(child->attributes.at("tuft.data_count")), 3);
  EXPECT_EQ(std::get<double>(child->attributes.at("tuft.loss")), 0.5);
  ASSERT_EQ(child->events.size(), 1u);
  EXPECT_EQ(child->events[0].name, "first_token");
  EXPECT_EQ(text_of(child->events[0].attributes, "tokens"), "1");
  ASSERT_EQ(child->links.size(), 1u);
  EXPECT_EQ(child->links[0].trace_id, linked.trace_id_hex());
  EXPECT_EQ(child->links[0].span_id, linked.span_id_hex());
  EXPECT_FALSE(child->error);
  EXPECT_LE(child->start, child->end);
  EXPECT_EQ(text_of(child->resource, "service.name"), "tuft");
  EXPECT_EQ(text_of(child->resource, "deployment.environment"), "test");
  EXPECT_EQ(text_of(child->resource, "telemetry.sdk.language"), "cpp");
  EXPECT_FALSE(text_of(child->resource, "service.instance.id").empty());
  EXPECT_FALSE(text_of(child->resource, "host.name").empty());
  EXPECT_EQ(text_of(child->resource, "process.pid"), std::to_string(::getpid()));

  const auto parent = collector.span("parent");
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->parent_span_id, "");
  EXPECT_EQ(parent->kind, 2);
  EXPECT_LE(parent->start, child->start);
  EXPECT_GE(parent->end, child->end);
}

TEST(Share, KeysThenOnEverythingBelowAndNowhereElse) {
  WithCollector collector;
  const Tracer tracer = get_tracer("tuft.test");
  {
    const Span above = tracer.start_span("above");
    Span work = tracer.start_span("work", {.parent = above.context()});
    work.share({{"tuft.session_id", "s-1"}, {"tuft.training_run_id", "run"}, {"tuft.backward", true}, {"empty", ""}});
    const Span beside = tracer.start_span("beside", {.parent = above.context()});
    std::thread([&tracer, parent = work.context()] {
      const Span step = tracer.start_span("step", {.attributes = {{"tuft.session_id", "own"}}, .parent = parent});
      Span nested = tracer.start_span("nested", {.parent = step.context()});
      nested.share({{"tuft.sampling_session_id", "sampler"}});
      const Span deepest = tracer.start_span("deepest", {.parent = nested.context()});
      Span late = tracer.start_span("late", {.parent = {}});
      late.share(parent);
    }).join();
  }
  ASSERT_TRUE(collector.flush());
  const auto key = [&](const char* span, const char* name) { return text_of(collector.span(span)->attributes, name); };
  for (const char* unrelated : {"above", "beside"}) EXPECT_EQ(collector.span(unrelated)->attribute_count, 0U);
  EXPECT_EQ(key("work", "tuft.session_id"), "s-1");
  EXPECT_EQ(collector.span("work")->attribute_count, 2U) << "texts only, and none that are empty";
  EXPECT_EQ(key("step", "tuft.session_id"), "own");
  EXPECT_EQ(key("step", "tuft.training_run_id"), "run");
  EXPECT_EQ(collector.span("step")->attribute_count, 2U) << "a key is sent once";
  for (const char* span : {"nested", "deepest"}) {
    EXPECT_EQ(key(span, "tuft.session_id"), "s-1") << span;
    EXPECT_EQ(key(span, "tuft.sampling_session_id"), "sampler") << span;
  }
  EXPECT_EQ(key("late", "tuft.training_run_id"), "run");
}

TEST(Share, KeysOfAContextThenOnItsChildrenAndOnRoots) {
  WithCollector collector;
  const SpanContext remote = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  get_tracer("tuft.test").start_span("child", {.parent = share(remote, {{"tuft.request_id", "r-1"}})}).end();
  get_tracer("tuft.test").start_span("root", {.parent = share({}, {{"tuft.session_id", "s-1"}})}).end();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(text_of(collector.span("child")->attributes, "tuft.request_id"), "r-1");
  EXPECT_EQ(collector.span("child")->trace_id, remote.trace_id_hex());
  EXPECT_EQ(text_of(collector.span("root")->attributes, "tuft.session_id"), "s-1");
  EXPECT_EQ(collector.span("root")->parent_span_id, "");
}

uint32_t keep_and_release(Attributes keys) {
  const uint32_t number = internal::keep_share_keys(keys, 0);
  internal::release_share_keys(number);
  return number;
}

TEST(Share, MoreSetsThanAreKeptThenTheOldestIsForgottenAndNoOtherTaken) {
  const uint32_t first = keep_and_release({{"key", "first"}});
  const auto kept = internal::kept_share_keys(first);
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->value(0), "first");
  uint32_t last = 0;
  for (size_t i = 0; i < internal::kShareKeySetsMax; ++i) last = keep_and_release({{"key", "later"}});
  EXPECT_EQ(internal::kept_share_keys(first), nullptr);
  EXPECT_EQ(internal::kept_share_keys(last)->value(0), "later");
  EXPECT_EQ(internal::kept_share_keys(last + 1), nullptr);
  EXPECT_EQ(kept->value(0), "first") << "whoever has it keeps it";
}

void share_others(size_t count) {
  for (size_t i = 0; i < count; ++i) keep_and_release({{"key", "other"}});
}

TEST(Share, ManyOthersBeginWhileASpanRunsThenItsKeysStay) {
  WithCollector collector;
  const Tracer tracer = get_tracer("tuft.test");
  {
    Span work = tracer.start_span("work", {.parent = {}});
    work.share({{"tuft.session_id", "s-1"}});
    Span inner = tracer.start_span("inner", {.parent = work.context()});
    inner.share({{"tuft.request_id", "early"}});
    inner.share({{"tuft.request_id", "r-1"}});
    share_others(internal::kShareKeySetsMax);
    tracer.start_span("step", {.parent = inner.context()}).end();
  }
  ASSERT_TRUE(collector.flush());
  for (const char* span : {"work", "inner", "step"})
    EXPECT_EQ(text_of(collector.span(span)->attributes, "tuft.session_id"), "s-1") << span;
  EXPECT_EQ(text_of(collector.span("step")->attributes, "tuft.request_id"), "r-1");
}

TEST(Share, ManyOthersBeginWhileKeysAreHeldThenTheyStay) {
  WithCollector collector;
  const SpanContext remote = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  SharedKeys above(remote, {{"tuft.session_id", "s-1"}});
  SharedKeys held;
  held = SharedKeys(above.context(), {{"tuft.request_id", "r-1"}});
  const uint32_t inherited = above.context().keys;
  { const SharedKeys none(above.context(), {{"empty", ""}}); }  // releases nothing that others hold
  share_others(internal::kShareKeySetsMax);
  ASSERT_NE(internal::kept_share_keys(inherited), nullptr);
  above = SharedKeys();
  share_others(internal::kShareKeySetsMax);
  EXPECT_EQ(internal::kept_share_keys(inherited), nullptr);
  get_tracer("tuft.test").start_span("step", {.parent = held.context()}).end();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(text_of(collector.span("step")->attributes, "tuft.session_id"), "s-1");
  EXPECT_EQ(text_of(collector.span("step")->attributes, "tuft.request_id"), "r-1");
  EXPECT_EQ(collector.span("step")->trace_id, remote.trace_id_hex());
}

TEST(Share, SpanEndedThenItsKeysAreTheNewestThatCanBeReplaced) {
  const uint32_t number = internal::keep_share_keys({{"key", "work"}}, 0);
  share_others(internal::kShareKeySetsMax);
  internal::release_share_keys(number);
  share_others(internal::kShareKeySetsMax - 1);
  ASSERT_NE(internal::kept_share_keys(number), nullptr);
  EXPECT_EQ(internal::kept_share_keys(number)->value(0), "work");
  share_others(1);
  EXPECT_EQ(internal::kept_share_keys(number), nullptr);
  internal::release_share_keys(number);
  internal::release_share_keys(0);
}

TEST(Share, TelemetryOffThenNothingIsKept) {
  EXPECT_EQ(share({}, {{"tuft.session_id", "s-1"}}).keys, 0U);
}

TEST(Span, ErrorRecordedTwiceThenOneEventAndStatus) {
  WithCollector collector;
  {
    Span span = get_tracer("tuft.test").start_span("failing");
    span.record_error(not_found("no such adapter: create it first", "adapter_not_loaded"));
    span.record_error(internal_error("another"));
  }
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("failing");
  ASSERT_TRUE(span);
  EXPECT_TRUE(span->error);
  EXPECT_EQ(span->status_message, "no such adapter: create it first");
  EXPECT_EQ(text_of(span->attributes, "error.type"), "not_found");
  EXPECT_EQ(text_of(span->attributes, "tuft.error.reason"), "adapter_not_loaded");
  ASSERT_EQ(span->events.size(), 1u);
  EXPECT_EQ(span->events[0].name, "exception");
  EXPECT_EQ(text_of(span->events[0].attributes, "exception.type"), "not_found");
  EXPECT_EQ(text_of(span->events[0].attributes, "exception.message"), "no such adapter: create it first");
}

TEST(Span, UnsampledParentThenNotRecordedButPassedOn) {
  WithCollector collector({.keep_errors = false});
  const SpanContext parent = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
  const Span span = get_tracer("tuft.test").start_span("unsampled", {.parent = parent});
  EXPECT_FALSE(span.recording());
  EXPECT_TRUE(span.context().valid());
  EXPECT_FALSE(span.context().sampled());
  EXPECT_EQ(span.context().trace_id_hex(), parent.trace_id_hex());
}

TEST(Span, NotToBeRecordedThenNeitherAreThoseBelow) {
  WithCollector collector({.keep_errors = false});
  const Tracer tracer = get_tracer("tuft.test");
  SpanContext above;
  {
    const Span span = tracer.start_span("left out", {.record = false});
    EXPECT_FALSE(span.recording());
    above = span.context();
    EXPECT_TRUE(above.valid());
    EXPECT_FALSE(above.sampled());
    const Span below = tracer.start_span("below", {.parent = above});
    EXPECT_FALSE(below.recording());
  }
  ASSERT_TRUE(collector.flush());
  EXPECT_FALSE(collector.span("left out").has_value());
  EXPECT_FALSE(collector.span("below").has_value());
}

TEST(Span, TimesGivenThenDurationIsTheirs) {
  WithCollector collector;
  const Nanos start = system_clock().monotonic() - 5 * kSecond;
  const Nanos wall = system_clock().wall();
  Span span = get_tracer("tuft.test").start_span("retroactive", {.start = start});
  span.end(start + 2 * kSecond);
  span.end(start + 3 * kSecond);
  ASSERT_TRUE(collector.flush());
  const auto received = collector.span("retroactive");
  ASSERT_TRUE(received);
  EXPECT_EQ(received->end - received->start, static_cast<uint64_t>(2 * kSecond));
  EXPECT_NEAR(static_cast<double>(received->start), static_cast<double>(wall - 5 * kSecond), 1e9);
  EXPECT_EQ(collector.receiver.spans().size(), 1u);
}

TEST(Span, SeveralLinksThenAllArrive) {
  WithCollector collector;
  {
    Span span = get_tracer("tuft.test").start_span("merged", {.link = {1, 2, 100, 1}});
    for (uint64_t i = 0; i < 40; ++i) span.add_link({1, 2, 101 + i, 1});
    span.add_link({});
    span.set_attribute("text", "after the links");
  }
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("merged");
  ASSERT_TRUE(span);
  ASSERT_EQ(span->links.size(), 32U);
  for (uint64_t i = 0; i < 32; ++i) {
    EXPECT_EQ(span->links[i].span_id, (SpanContext{1, 2, 100 + i, 1}.span_id_hex()));
  }
  EXPECT_EQ(text_of(span->attributes, "text"), "after the links");
}

TEST(Span, TooManyAttributesThenTheRestIsCounted) {
  WithCollector collector;
  {
    Span span = get_tracer("tuft.test").start_span("full");
    for (int i = 0; i < 40; ++i) span.set_attribute(Name::intern("key." + std::to_string(i)), i);
    Span strings = get_tracer("tuft.test").start_span("long");
    strings.set_attribute("cut", std::string(600, 'a'));
    for (int i = 0; i < 5; ++i) strings.set_attribute(Name::intern("long." + std::to_string(i)), std::string(500, 'b'));
  }
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("full");
  ASSERT_TRUE(span);
  EXPECT_EQ(span->attribute_count, 32u);
  EXPECT_EQ(span->dropped_attributes, 8u);
  const auto strings = collector.span("long");
  ASSERT_TRUE(strings);
  EXPECT_EQ(text_of(strings->attributes, "cut").size(), 512u);
  EXPECT_EQ(strings->attribute_count, 4u);
  EXPECT_EQ(strings->dropped_attributes, 2u);
}

TEST(Span, BrokenUtf8ThenTheBatchStillArrives) {
  WithCollector collector;
  {
    Span span = get_tracer("tuft.test").start_span("utf8");
    span.set_attribute("broken", std::string("a\xff\xc3"));
    // A character that crosses the limit is left out completely.
    span.set_attribute("straddling", std::string(511, 'x') + "\xc3\xa9");
  }
  ASSERT_TRUE(collector.flush());
  const auto span = collector.span("utf8");
  ASSERT_TRUE(span);
  EXPECT_EQ(text_of(span->attributes, "broken"), "a\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(text_of(span->attributes, "straddling"), std::string(511, 'x'));
}

TEST(Span, MovedToAnotherThreadThenEndsThere) {
  WithCollector collector;
  std::vector<Span> spans;
  // More spans than a thread's pools hold, so that records pass through the shared pool.
  for (int i = 0; i < 300; ++i) spans.push_back(get_tracer("tuft.test").start_span("moved"));
  std::thread([moved = std::move(spans)]() mutable {
    for (Span& span : moved) span.set_attribute("thread", "other");
    moved.clear();
  }).join();
  ASSERT_TRUE(collector.flush());
  const auto received = collector.receiver.spans();
  EXPECT_EQ(received.size(), 300u);
  std::set<std::string> ids;
  for (const auto& span : received) {
    ids.insert(span.span_id);
    EXPECT_EQ(text_of(span.attributes, "thread"), "other");
  }
  EXPECT_EQ(ids.size(), 300u);
}

TEST(Span, ManyThreadsThatEndThenNothingIsLost) {
  WithCollector collector;
  constexpr int kThreads = 24;
  constexpr int kSpans = 200;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([] {
        const Tracer tracer = get_tracer("tuft.test");
        for (int i = 0; i < kSpans; ++i) {
          Span span = tracer.start_span("work", {.attributes = {{"i", i}, {"who", "worker"}}});
        }
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_TRUE(collector.flush());
  }
  EXPECT_EQ(collector.receiver.spans().size(), static_cast<size_t>(2 * kThreads * kSpans));
}

double dropped_spans(WithCollector& collector) {
  // Once for the spans and once for the metrics that count them.
  collector.flush();
  collector.flush();
  double dropped = 0;
  if (const auto metric = collector.receiver.metric("tuft.telemetry.dropped")) {
    for (const auto& point : metric->points) {
      if (text_of(point.labels, "signal") == "traces") dropped += point.value;
    }
  }
  return dropped;
}

TEST(Span, MoreThanTheRingHoldsThenDropsAreCounted) {
  WithCollector collector;
  const double dropped_before = dropped_spans(collector);
  constexpr int kSpans = 200'000;
  const Tracer tracer = get_tracer("tuft.test");
  for (int i = 0; i < kSpans; ++i) Span span = tracer.start_span("flood", {.attributes = {{"i", i}}});
  const double dropped = dropped_spans(collector) - dropped_before;
  EXPECT_EQ(static_cast<double>(collector.receiver.spans().size()) + dropped, kSpans);
}

TEST(Sampler, RatioInTheEnvironmentThenAboutThatShareAndWholeTraces) {
  ::setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio", 1);
  ::setenv("OTEL_TRACES_SAMPLER_ARG", "0.25", 1);
  {
    WithCollector collector;
    const Tracer tracer = get_tracer("tuft.test");
    for (int i = 0; i < 400; ++i) {
      const Span root = tracer.start_span("root");
      EXPECT_TRUE(root.context().valid());
      const Span child = tracer.start_span("child", {.parent = root.context()});
      EXPECT_EQ(child.recording(), root.recording());
    }
    ASSERT_TRUE(collector.flush());
    // The expected number is 100 of 400; the probability of a value outside is below one in a billion.
    const size_t traces = collector.receiver.spans().size() / 2;
    EXPECT_GT(traces, 45u);
    EXPECT_LT(traces, 160u);
  }
  ::setenv("OTEL_TRACES_SAMPLER", "always_off", 1);
  {
    WithCollector collector;
    const SpanContext parent = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    EXPECT_FALSE(get_tracer("tuft.test").start_span("off", {.parent = parent}).recording());
  }
  ::unsetenv("OTEL_TRACES_SAMPLER");
  ::unsetenv("OTEL_TRACES_SAMPLER_ARG");
}

TEST(Span, TelemetryOffThenNothingButTheParentsContext) {
  const SpanContext parent = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  Span span = get_tracer("tuft.test").start_span("off", {.parent = parent});
  span.set_attribute("a", 1);
  span.record_error(internal_error("x"));
  EXPECT_FALSE(span.recording());
  EXPECT_EQ(span.context(), parent);
  EXPECT_FALSE(get_tracer("tuft.test").start_span("root").context().valid());
}

TEST(Name, InternedTwiceThenTheSameName) {
  const Name a = Name::intern(std::string("POST /api/v1/asample"));
  EXPECT_EQ(a, Name::intern("POST /api/v1/asample"));
  EXPECT_EQ(a.view(), "POST /api/v1/asample");
}

}  // namespace
}  // namespace tuft::telemetry
