// Tests the table of edge cases in docs/request-tracing.md, row by row.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/request/tests/request_trace_fixture.h"

namespace tuft::telemetry {
namespace {

using ::testing::HasSubstr;

TEST(RequestTraceEdge, EndWithoutStartThenRefused) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  EXPECT_FALSE(trace_slice_end("a", "r1"));
  trace_slice_start("a", "r1");
  EXPECT_TRUE(trace_slice_end("a", "r1"));
  EXPECT_FALSE(trace_slice_end("a", "r1")) << "ended twice";
  EXPECT_TRUE(trace_req_finish("r1"));
  EXPECT_FALSE(trace_req_finish("r1")) << "finished twice";
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.count("a"), 1U);
  EXPECT_EQ(collector.count("Req r1"), 1U);
}

TEST(RequestTraceEdge, UnknownRequestThenNothing) {
  Traced collector;
  EXPECT_FALSE(trace_slice_start("a", "nobody"));
  EXPECT_FALSE(trace_slice_end("a", "nobody"));
  EXPECT_FALSE(trace_report_span("a", "nobody", 1, 2));
  EXPECT_FALSE(trace_event("e", "nobody"));
  EXPECT_FALSE(trace_slice_add_attr("nobody", {{"k", 1}}));
  EXPECT_FALSE(trace_req_finish("nobody"));
  EXPECT_FALSE(trace_req_abort("nobody", "why"));
  EXPECT_FALSE(trace_get_proc_propagate_context("nobody").valid());
  EXPECT_EQ(trace_get_proc_propagate_context("nobody").to_json(), "");
  ASSERT_TRUE(collector.flush());
  EXPECT_TRUE(collector.receiver.spans().empty());
}

TEST(RequestTraceEdge, UnknownThreadThenItIsNamedSo) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  on_another_thread([] {
    EXPECT_FALSE(trace_get_proc_propagate_context("r1").previous.valid());
    EXPECT_TRUE(trace_get_proc_propagate_context("r1").valid());
    EXPECT_FALSE(trace_event("early", "r1"));
    EXPECT_FALSE(trace_slice_end("a", "r1"));
    EXPECT_TRUE(trace_slice_start("a", "r1"));
    EXPECT_TRUE(trace_slice_end("a", "r1", {.thread_finish = true}));
  });
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.starting("unknown(host:").parent_span_id, collector.get("Req r1").span_id);
}

TEST(RequestTraceEdge, ThreadInfoTwiceThenTheFirstWins) {
  Traced collector;
  on_another_thread([] {
    ASSERT_TRUE(trace_req_start("before"));
    EXPECT_TRUE(trace_set_thread_info("first", 3)) << "spans of an unknown thread do not name it";
    EXPECT_FALSE(trace_set_thread_info("second"));
    ASSERT_TRUE(trace_req_start("r1"));
    trace_req_finish("r1");
    trace_req_finish("before");
  });
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.starting("first [TP 3] (host:").parent_span_id, collector.get("Req r1").span_id);
}

TEST(RequestTraceEdge, DuplicateRequestThenTheFirstStays) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1", {}, 0, "one"));
  EXPECT_FALSE(trace_req_start("r1", {}, 0, "two"));
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.count("one Req r1"), 1U);
  EXPECT_EQ(collector.count("two Req r1"), 0U);
}

TEST(RequestTraceEdge, OtherNameAtTheEndThenAnErrorThatKeepsItsName) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  trace_slice_start("a", "r1");
  EXPECT_TRUE(trace_slice_end("b", "r1"));
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan slice = collector.get("a");
  EXPECT_TRUE(slice.error);
  EXPECT_THAT(slice.status_message, HasSubstr("'b'"));
}

TEST(RequestTraceEdge, OpenSlicesAtTheEndThenClosedAndMarked) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  trace_slice_start("outer", "r1");
  trace_slice_start("inner", "r1");
  trace_req_finish("r1");
  ASSERT_TRUE(trace_req_start("r2"));
  trace_slice_start("left", "r2");
  trace_slice_start("last", "r2");
  EXPECT_TRUE(trace_slice_end("last", "r2", {.thread_finish = true}));
  trace_req_finish("r2");
  ASSERT_TRUE(collector.flush());
  for (const char* name : {"outer", "inner", "left"})
    EXPECT_EQ(text_of(collector.get(name).attributes, "tuft.trace.unfinished"), "true") << name;
  EXPECT_EQ(text_of(collector.get("last").attributes, "tuft.trace.unfinished"), "");
  EXPECT_EQ(collector.get("outer").end, collector.get("Req r1").end);
}

TEST(RequestTraceEdge, EventWithoutSliceThenOnTheThreadAttributesNowhere) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  EXPECT_TRUE(trace_event("note", "r1"));
  EXPECT_FALSE(trace_slice_add_attr("r1", {{"k", 1}}));
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  size_t events = 0;
  for (const ReceivedSpan& span : collector.receiver.spans()) {
    events += span.events.size();
    EXPECT_EQ(text_of(span.attributes, "k"), "");
  }
  EXPECT_EQ(events, 1U);
}

TEST(RequestTraceEdge, AbortThenErrorsWithTheReason) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  trace_slice_start("a", "r1");
  EXPECT_TRUE(trace_req_abort("r1", "the client went away", 0, {{"step", 4}}));
  EXPECT_EQ(traced_requests(), 0U);
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan root = collector.get("Req r1");
  EXPECT_TRUE(root.error);
  EXPECT_EQ(root.status_message, "the client went away");
  EXPECT_EQ(text_of(root.attributes, "step"), "4");
  EXPECT_EQ(text_of(collector.get("a").attributes, "tuft.trace.unfinished"), "true");
}

TEST(RequestTraceEdge, MalformedContextThenIgnoredAndCounted) {
  Traced collector;
  for (const char* text : {"{", "[]", "7", "\"x\"", "{}", R"({"root_span": {"traceparent": "00-0-0-0"}})",
                           R"({"root_span": 5, "prev_span": "None"})", "{\"a\":{\"b\":{\"c\":{\"d\":{}}}}}"}) {
    EXPECT_FALSE(trace_set_proc_propagate_context("r1", text)) << text;
  }
  EXPECT_FALSE(trace_set_proc_propagate_context("r1", ""));
  EXPECT_FALSE(trace_set_proc_propagate_context("r1", "None"));
  for (const char* text : {"!", "e30", "bm90IGpzb24=", "eyJ4Ijp7fX0="}) {
    EXPECT_FALSE(trace_set_remote_propagate_context(text)) << text;
  }
  EXPECT_FALSE(trace_set_remote_propagate_context(""));
  EXPECT_FALSE(trace_set_remote_propagate_context("None"));
  EXPECT_EQ(traced_requests(), 0U);
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("tuft.telemetry.context.malformed", {{"header", "trace_context"}}), 12);
}

TEST(RequestTraceEdge, ContextTextThenItReadsBackAndPythonsDoes) {
  const Traced collector;
  const TraceProcContext context{.root = {0xff00000000000001, 0xfe00000000000002, 0xfd00000000000003, 1},
                                 .previous = {0xff00000000000001, 0xfe00000000000002, 0xfc00000000000004, 1}};
  const TraceProcContext read = TraceProcContext::from_json(context.to_json());
  EXPECT_EQ(read.root, context.root);
  EXPECT_EQ(read.previous, context.previous);
  EXPECT_THAT(context.to_json(), HasSubstr("\"trace_id\": 338953138925153547627220173330831114242}"));
  const TraceProcContext python = TraceProcContext::from_json(
      R"({"root_span": {"traceparent": "00-0000000000000000000000000000002a-0000000000000007-01", "tracestate": "a=b"},)"
      R"( "prev_span": "None"})");
  EXPECT_EQ(python.root.trace_id_low, 42U);
  EXPECT_EQ(python.root.span_id, 7U);
  EXPECT_TRUE(python.root.sampled());
  EXPECT_EQ(tracestate(python.root), "a=b");
  EXPECT_EQ(TraceProcContext::from_json(python.to_json()).root.span_id, 7U);
  EXPECT_THAT(python.to_json(), HasSubstr(R"("tracestate": "a=b"})"));
  EXPECT_FALSE(python.previous.valid());
  // If the slice cannot be read, only its link is lost.
  const TraceProcContext half = TraceProcContext::from_json(
      R"({"root_span": {"traceparent": "00-0000000000000000000000000000002a-0000000000000007-01"},)"
      R"( "prev_span": {"span_id": 99999999999999999999999, "trace_id": -1}})");
  EXPECT_TRUE(half.valid());
  EXPECT_FALSE(half.previous.valid());
}

TEST(RequestTraceEdge, TableFullThenRefusedAndCounted) {
  Traced collector;
  for (size_t i = 0; i < kTracedRequestsMax; ++i) ASSERT_TRUE(trace_req_start("r" + std::to_string(i)));
  EXPECT_FALSE(trace_req_start("one too many"));
  EXPECT_FALSE(trace_set_proc_propagate_context("one too many", {.root = {1, 2, 3, 1}, .previous = {}}));
  EXPECT_EQ(trace_sweep(0), kTracedRequestsMax);
  EXPECT_TRUE(trace_req_start("one too many"));
  trace_req_finish("one too many");
  collector.flush();
  EXPECT_EQ(collector.sum("tuft.telemetry.dropped", {{"signal", "traces"}, {"reason", "request_table_full"}}), 2);
}

TEST(RequestTraceEdge, TooManySlicesAndThreadsThenRefused) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  for (size_t i = 0; i < kTracedSlicesMax; ++i) EXPECT_TRUE(trace_slice_start("deep", "r1"));
  EXPECT_FALSE(trace_slice_start("too deep", "r1"));
  size_t refused = 0;
  for (size_t i = 0; i < kTracedThreadsMax; ++i)
    on_another_thread([&] { refused += trace_slice_start("wide", "r1") ? 0 : 1; });
  EXPECT_EQ(refused, 1U) << "the thread that started the request counts too";
  trace_req_finish("r1");
}

TEST(RequestTraceEdge, AbandonedRequestThenClosedAtItsLastTouchAndMarked) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  trace_slice_start("a", "r1");
  EXPECT_EQ(trace_sweep(), 0U) << "it was touched just now";
  EXPECT_EQ(trace_sweep(0), 1U);
  EXPECT_EQ(traced_requests(), 0U);
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(text_of(collector.get("Req r1").attributes, "tuft.trace.expired"), "true");
  EXPECT_EQ(text_of(collector.get("a").attributes, "tuft.trace.unfinished"), "true");
}

TEST(RequestTraceEdge, TelemetryOffThenNothingAndNoState) {
  EXPECT_FALSE(telemetry_enabled());
  EXPECT_FALSE(trace_set_thread_info("label"));
  EXPECT_FALSE(trace_req_start("r1"));
  EXPECT_FALSE(trace_slice_start("a", "r1"));
  EXPECT_FALSE(trace_slice_end("a", "r1"));
  EXPECT_FALSE(trace_set_proc_propagate_context("r1", {.root = {1, 2, 3, 1}, .previous = {}}));
  EXPECT_EQ(trace_get_remote_propagate_context({}), "");
  EXPECT_FALSE(trace_set_remote_propagate_context("e30="));
  EXPECT_FALSE(get_trace_info("r1"));
  EXPECT_FALSE(trace_req_finish("r1"));
  EXPECT_EQ(traced_requests(), 0U);
  const SpanContext root{1, 2, 3, 1};
  EXPECT_EQ(report_stage(root, {"a", 1, 2}), root) << "children hang below the parent";
}

TEST(RequestTraceEdge, ManyThreadsThenEveryRequestIsWhole) {
  Traced collector;
  constexpr int kThreads = 4;
  constexpr int kRequests = 100;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kRequests; ++i) {
        const std::string rid = std::to_string(t) + "-" + std::to_string(i);
        trace_req_start(rid);
        const TraceSlice slice(TraceSpanName::PREFILL, rid);
        trace_event("token", rid);
      }
      for (int i = 0; i < kRequests; ++i) trace_req_finish(std::to_string(t) + "-" + std::to_string(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(traced_requests(), 0U);
  EXPECT_EQ(collector.count("PREFILL"), static_cast<size_t>(kThreads * kRequests));
  EXPECT_EQ(collector.receiver.spans().size(), static_cast<size_t>(3 * kThreads * kRequests));
}

}  // namespace
}  // namespace tuft::telemetry
