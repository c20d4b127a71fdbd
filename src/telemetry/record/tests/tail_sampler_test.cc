#include "telemetry/record/tail_sampler.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/mutex.h"
#include "telemetry/record/recorder.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

using internal::RecordHeader;
using internal::SpanHead;
using internal::TailSampler;

// Head sampling keeps no trace, so the tail sampler has kept every span that arrives.
TelemetryConfig keep_nothing() {
  TelemetryConfig config;
  config.sampling_ratio = 0;
  return config;
}

std::map<std::string, int> names(const WithCollector& collector) {
  std::map<std::string, int> counts;
  for (const auto& span : collector.receiver.spans()) ++counts[span.name];
  return counts;
}

TEST(TailSampling, OneSpanFailsThenTheWholeTraceArrivesAndNoOther) {
  WithCollector collector(keep_nothing());
  const Tracer tracer = get_tracer("tuft.test");
  {
    Span other = tracer.start_span("other");
    Span root = tracer.start_span("root");
    EXPECT_TRUE(root.recording());
    EXPECT_FALSE(root.context().sampled()) << "nobody else shall sample it for us";
    { const Span before = tracer.start_span("before", {.parent = root.context()}); }
    {
      Span failing = tracer.start_span("failing", {.parent = root.context()});
      failing.record_error(internal_error("broken"));
    }
    { const Span after = tracer.start_span("after", {.parent = root.context()}); }
  }
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(names(collector), (std::map<std::string, int>{{"root", 1}, {"before", 1}, {"failing", 1}, {"after", 1}}));
}

TEST(TailSampling, LateSpanOfAKeptTraceThenItArrivesToo) {
  WithCollector collector(keep_nothing());
  const Tracer tracer = get_tracer("tuft.test");
  Span root = tracer.start_span("root");
  Span failing = tracer.start_span("failing", {.parent = root.context()});
  failing.record_error(internal_error("broken"));
  failing.end();
  ASSERT_TRUE(collector.flush());
  root.end();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(names(collector), (std::map<std::string, int>{{"root", 1}, {"failing", 1}}));
}

TEST(TailSampling, SlowSpanThenTheWholeTraceArrives) {
  TelemetryConfig config = keep_nothing();
  config.keep_errors = false;
  config.keep_slower_than = 2 * kSecond;
  WithCollector collector(config);
  const Tracer tracer = get_tracer("tuft.test");
  const Nanos start = system_clock().monotonic() - 3 * kSecond;
  for (const Nanos took : {kSecond, 2 * kSecond}) {
    Span root = tracer.start_span(Name::intern(took == kSecond ? "quick" : "slow"), {.start = start});
    Span child = tracer.start_span(Name::intern(took == kSecond ? "of quick" : "of slow"), {.parent = root.context()});
    child.record_error(internal_error("errors are not asked for"));
    child.end();
    root.end(start + took);
  }
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(names(collector), (std::map<std::string, int>{{"slow", 1}, {"of slow", 1}}));
}

TEST(TailSampling, NothingAskedForThenNothingIsRecorded) {
  TelemetryConfig config = keep_nothing();
  config.keep_errors = false;
  WithCollector collector(config);
  EXPECT_FALSE(get_tracer("tuft.test").start_span("off").recording());
}

TEST(TailSampling, AnotherProcessKeepsItThenItArrivesAndThisOneReportsItsOwn) {
  WithCollector collector(keep_nothing());
  tuft::Mutex mutex;
  std::vector<TraceId> told;
  on_traces_kept([&](std::span<const TraceId> traces) {
    tuft::MutexLock lock(mutex);
    told.insert(told.end(), traces.begin(), traces.end());
  });
  const Tracer tracer = get_tracer("tuft.test");
  SpanContext theirs;
  SpanContext ours;
  {
    const Span span = tracer.start_span("theirs");
    theirs = span.context();
    Span failing = tracer.start_span("ours");
    failing.record_error(internal_error("broken"));
    ours = failing.context();
  }
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(names(collector), (std::map<std::string, int>{{"ours", 1}}));
  keep_traces({{theirs.trace_id_high, theirs.trace_id_low}});
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(names(collector), (std::map<std::string, int>{{"ours", 1}, {"theirs", 1}}));
  on_traces_kept({});
  tuft::MutexLock lock(mutex);
  EXPECT_EQ(told, (std::vector<TraceId>{{ours.trace_id_high, ours.trace_id_low}}));
}

TEST(TailSampling, SampledTracesThenCountedApart) {
  TelemetryConfig config;
  config.sampler = "parentbased_always_on";
  WithCollector collector(config);
  collector.flush();
  const auto started = [&](const char* result) {
    return std::max(0.0, collector.sum("otel.sdk.span.started", {{"otel.span.sampling_result", result}}));
  };
  const double sampled = started("RECORD_AND_SAMPLE");
  const double record_only = started("RECORD_ONLY");
  const double live = collector.sum("otel.sdk.span.live");
  const Span one = get_tracer("tuft.test").start_span("one");
  const SpanContext unsampled = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
  { const Span two = get_tracer("tuft.test").start_span("two", {.parent = unsampled}); }
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(started("RECORD_AND_SAMPLE") - sampled, 1);
  EXPECT_EQ(started("RECORD_ONLY") - record_only, 1);
  EXPECT_EQ(collector.sum("otel.sdk.span.live") - live, 1);
}

// A record in the form that it has in a ring.
std::vector<std::byte> record_of(uint64_t trace, bool error, size_t padding = 0) {
  SpanHead head{};
  head.context = {1, trace, 7, 0};
  head.error = error;
  head.string_bytes = static_cast<uint32_t>(padding);
  const size_t size = internal::ByteRing::round_up(sizeof(RecordHeader) + sizeof(SpanHead) + padding);
  std::vector<std::byte> bytes(size);
  const RecordHeader header{static_cast<uint32_t>(size), internal::kSpanType};
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), &head, sizeof(head));
  return bytes;
}

class Sink {
 public:
  TailSampler::Export out = [this](const RecordHeader& header, const std::byte* record) {
    SpanHead head;
    std::memcpy(&head, record + sizeof(header), sizeof(head));
    EXPECT_TRUE(head.context.sampled()) << "back ends take the flag at its word";
    traces.push_back(head.context.trace_id_low);
  };
  void add(TailSampler& sampler, const std::vector<std::byte>& record) {
    RecordHeader header;
    std::memcpy(&header, record.data(), sizeof(header));
    sampler.add(header, record.data(), out);
  }
  std::vector<uint64_t> traces;
};

TEST(TailSampler, FloodThenBytesAreBoundedAndTheNewestIsKept) {
  FakeClock clock;
  TailSampler sampler({.bytes_max = 1 << 16}, clock);
  Sink sink;
  for (uint64_t trace = 1; trace <= 20'000; ++trace) {
    sink.add(sampler, record_of(trace, false, trace % 700));
    ASSERT_LE(sampler.held_bytes(), size_t{1} << 16);
  }
  sampler.end_drain(sink.out);
  EXPECT_TRUE(sink.traces.empty());
  sink.add(sampler, record_of(20'000, true));
  EXPECT_EQ(sink.traces, (std::vector<uint64_t>{20'000, 20'000})) << "the newest was still held";
  sink.add(sampler, record_of(1, true));
  EXPECT_EQ(sink.traces.size(), 3u) << "the oldest was given up, its error arrives alone";
}

TEST(TailSampler, ManyTracesInterleavedThenEachComesWholeAndInOrder) {
  FakeClock clock;
  TailSampler sampler({}, clock);
  Sink sink;
  for (int round = 0; round < 50; ++round) {
    for (uint64_t trace = 1; trace <= 100; ++trace) sink.add(sampler, record_of(trace, false));
  }
  sink.add(sampler, record_of(42, true));
  EXPECT_EQ(sink.traces, std::vector<uint64_t>(51, 42));
}

TEST(TailSampler, HeldTooLongThenForgotten) {
  FakeClock clock;
  TailSampler sampler({.keep_slower_than = 100 * kSecond}, clock);
  Sink sink;
  sink.add(sampler, record_of(1, false));
  clock.advance(199 * kSecond);
  sampler.end_drain(sink.out);
  EXPECT_GT(sampler.held_bytes(), 0u) << "twice the time that a slow span takes";
  clock.advance(2 * kSecond);
  sampler.end_drain(sink.out);
  EXPECT_EQ(sampler.held_bytes(), 0u);
  sink.add(sampler, record_of(1, true));
  EXPECT_EQ(sink.traces.size(), 1u);
}

TEST(TailSampler, MoreKeptTracesThanTheLimitThenTheOldestIsForgotten) {
  FakeClock clock;
  TailSampler sampler({.kept_traces_max = 2}, clock);
  Sink sink;
  for (uint64_t trace = 1; trace <= 3; ++trace) sink.add(sampler, record_of(trace, true));
  sink.traces.clear();
  for (uint64_t trace = 1; trace <= 3; ++trace) sink.add(sampler, record_of(trace, false));
  EXPECT_EQ(sink.traces, (std::vector<uint64_t>{2, 3}));
}

}  // namespace
}  // namespace tuft::telemetry
