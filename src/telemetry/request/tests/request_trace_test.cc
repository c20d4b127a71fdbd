#include "telemetry/request_trace.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/request/tests/request_trace_fixture.h"

namespace tuft::telemetry {
namespace {

using ::testing::HasSubstr;

TEST(RequestTrace, StagesOfOneThreadThenThreeLevelsAndLinks) {
  Traced collector;
  on_another_thread([] {
    EXPECT_TRUE(trace_set_thread_info("http", 1, 2));
    EXPECT_TRUE(trace_req_start("r1", {}, 0, "prefill"));
    EXPECT_TRUE(trace_slice_start(TraceSpanName::PREPROCESS, "r1"));
    EXPECT_TRUE(trace_slice_start("tokenize", "r1"));
    EXPECT_TRUE(trace_slice_end("tokenize", "r1", {.attributes = {{"tokens", 12}}}));
    EXPECT_TRUE(trace_slice_end(TraceSpanName::PREPROCESS, "r1"));
    EXPECT_TRUE(trace_slice_start(TraceSpanName::SCHEDULE, "r1"));
    EXPECT_TRUE(trace_slice_end(TraceSpanName::SCHEDULE, "r1", {.thread_finish = true}));
    EXPECT_TRUE(trace_req_finish("r1", 0, {{"tokens.out", 7}}));
  });
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan root = collector.get("prefill Req r1");
  EXPECT_EQ(root.parent_span_id, "");
  EXPECT_EQ(root.kind, 2);
  EXPECT_EQ(text_of(root.attributes, "rid"), "r1");
  EXPECT_EQ(text_of(root.attributes, "tokens.out"), "7");
  const ReceivedSpan row = collector.starting("http [TP 1] (host:");
  EXPECT_EQ(row.parent_span_id, root.span_id);
  EXPECT_EQ(text_of(row.attributes, "thread_label"), "http");
  EXPECT_EQ(text_of(row.attributes, "tp_rank"), "1");
  EXPECT_EQ(text_of(row.attributes, "dp_rank"), "2");
  EXPECT_THAT(row.name, HasSubstr(" | pid:" + text_of(row.attributes, "pid") + ")"));
  EXPECT_NE(text_of(row.attributes, "host_id"), "");
  const ReceivedSpan preprocess = collector.get("PREPROCESS");
  const ReceivedSpan tokenize = collector.get("tokenize");
  const ReceivedSpan schedule = collector.get("SCHEDULE");
  EXPECT_EQ(preprocess.parent_span_id, row.span_id);
  EXPECT_TRUE(preprocess.links.empty());
  EXPECT_EQ(tokenize.parent_span_id, preprocess.span_id);
  EXPECT_TRUE(tokenize.links.empty());
  EXPECT_EQ(text_of(tokenize.attributes, "tokens"), "12");
  EXPECT_EQ(schedule.parent_span_id, row.span_id);
  ASSERT_EQ(schedule.links.size(), 1U);
  EXPECT_EQ(schedule.links[0].span_id, preprocess.span_id);
  EXPECT_EQ(traced_requests(), 0U);
}

TEST(RequestTrace, EachNamedStageThenItsNameIsTheOneOfFastDeploy) {
  using enum TraceSpanName;
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  const TraceSpanName inside[] = {PREPROCESS, SCHEDULE, PREFILL, DECODE, POSTPROCESS};
  trace_slice_start(FASTDEPLOY, "r1");
  for (const TraceSpanName name : inside) {
    trace_slice_start(name, "r1");
    EXPECT_TRUE(trace_slice_end(name, "r1"));
  }
  EXPECT_TRUE(trace_slice_end(FASTDEPLOY, "r1"));
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  const std::string whole = collector.get("FASTDEPLOY").span_id;
  for (const char* name : {"PREPROCESS", "SCHEDULE", "PREFILL", "DECODE", "POSTPROCESS"}) {
    EXPECT_EQ(collector.get(name).parent_span_id, whole) << name;
  }
}

TEST(RequestTrace, StageThatRunsThenTheNextMayLinkToItAndItTakesTheKeysOfItsWork) {
  Traced collector;
  const Nanos start = system_clock().monotonic();
  {
    const Span server = get_tracer("test").start_span("server");
    Span work = get_tracer("test").start_span("work", {.parent = server.context()});
    work.share({{"tuft.request_id", "r-1"}});
    RunningStage stage = start_stage(server.context(), TraceSpanName::PREPROCESS, start);
    const TraceStage next[] = {{TraceSpanName::SCHEDULE, start, start + 1, {}}};
    report_stages(server.context(), next, stage.context());
    stage.share(work.context());
    stage.end(start + 5);
  }
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan stage = collector.get("PREPROCESS");
  EXPECT_EQ(stage.end - stage.start, 5U);
  EXPECT_EQ(text_of(stage.attributes, "tuft.request_id"), "r-1");
  const ReceivedSpan schedule = collector.get("SCHEDULE");
  ASSERT_EQ(schedule.links.size(), 1U);
  EXPECT_EQ(schedule.links[0].span_id, stage.span_id);
  EXPECT_EQ(schedule.links[0].trace_id, stage.trace_id);
}

TEST(RequestTrace, ContextHandedOnAsJsonThenNextThreadLinksToTheSliceBefore) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  trace_slice_start(TraceSpanName::PREPROCESS, "r1");
  const std::string json = trace_get_proc_propagate_context("r1").to_json();
  trace_slice_end(TraceSpanName::PREPROCESS, "r1");
  on_another_thread([&] {
    trace_set_thread_info("engine");
    EXPECT_TRUE(trace_set_proc_propagate_context("r1", json));
    EXPECT_FALSE(trace_set_proc_propagate_context("r1", json)) << "the first one wins";
    trace_slice_start(TraceSpanName::PREFILL, "r1");
    trace_slice_end(TraceSpanName::PREFILL, "r1");
    trace_slice_start(TraceSpanName::DECODE, "r1");
    trace_slice_end(TraceSpanName::DECODE, "r1", {.thread_finish = true});
  });
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan root = collector.get("Req r1");
  const ReceivedSpan row = collector.starting("engine(host:");
  EXPECT_EQ(row.parent_span_id, root.span_id);
  const ReceivedSpan prefill = collector.get("PREFILL");
  EXPECT_EQ(prefill.parent_span_id, row.span_id);
  ASSERT_EQ(prefill.links.size(), 1U);
  EXPECT_EQ(prefill.links[0].span_id, collector.get("PREPROCESS").span_id);
  ASSERT_EQ(collector.get("DECODE").links.size(), 1U);
  EXPECT_EQ(collector.get("DECODE").links[0].span_id, prefill.span_id);
}

TEST(RequestTrace, RequestFromElsewhereThenItGoesWithItsLastThread) {
  Traced collector;
  const TraceProcContext context{.root = {1, 2, 3, 1}, .previous = {1, 2, 4, 1}};
  ASSERT_TRUE(trace_set_proc_propagate_context("r9", context));
  trace_slice_start(TraceSpanName::DECODE, "r9");
  EXPECT_EQ(traced_requests(), 1U);
  EXPECT_TRUE(trace_slice_end(TraceSpanName::DECODE, "r9", {.thread_finish = true}));
  EXPECT_EQ(traced_requests(), 0U);
  EXPECT_FALSE(trace_req_finish("r9"));
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan decode = collector.get("DECODE");
  EXPECT_EQ(decode.trace_id, context.root.trace_id_hex());
  ASSERT_EQ(decode.links.size(), 1U);
  EXPECT_EQ(decode.links[0].span_id, context.previous.span_id_hex());
}

TEST(RequestTrace, ExplicitTimesThenSpansAndEventsHaveThem) {
  Traced collector;
  const Nanos start = system_clock().wall() - 10 * kSecond;
  ASSERT_TRUE(trace_req_start("r1", {}, start));
  EXPECT_TRUE(trace_report_span(TraceSpanName::PREFILL, "r1", start + kSecond, start + 2 * kSecond, {{"n", 1}}));
  trace_slice_start(TraceSpanName::DECODE, "r1", {.ts = start + 3 * kSecond});
  EXPECT_TRUE(trace_event("first_token", "r1", start + 4 * kSecond, {{"position", 5}}));
  EXPECT_TRUE(trace_slice_add_attr("r1", {{"batch", 8}}));
  trace_slice_end(TraceSpanName::DECODE, "r1", {.ts = start + 5 * kSecond});
  trace_req_finish("r1", start + 6 * kSecond);
  ASSERT_TRUE(collector.flush());
  const auto near = [](uint64_t actual, Nanos expected) {
    EXPECT_NEAR(static_cast<double>(static_cast<Nanos>(actual) - expected), 0, 50.0 * kMillisecond);
  };
  const ReceivedSpan root = collector.get("Req r1");
  near(root.start, start);
  EXPECT_EQ(root.end - root.start, static_cast<uint64_t>(6 * kSecond));
  const ReceivedSpan prefill = collector.get("PREFILL");
  EXPECT_EQ(prefill.start - root.start, static_cast<uint64_t>(kSecond));
  EXPECT_EQ(prefill.end - prefill.start, static_cast<uint64_t>(kSecond));
  EXPECT_EQ(text_of(prefill.attributes, "n"), "1");
  const ReceivedSpan decode = collector.get("DECODE");
  EXPECT_EQ(text_of(decode.attributes, "batch"), "8");
  ASSERT_EQ(decode.events.size(), 1U);
  EXPECT_EQ(decode.events[0].name, "first_token");
  EXPECT_EQ(decode.events[0].time - root.start, static_cast<uint64_t>(4 * kSecond));
  EXPECT_EQ(text_of(decode.events[0].attributes, "position"), "5");
}

TEST(RequestTrace, AnonymousSlicesThenNamedAtTheirEnds) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  trace_slice_start("", "r1", {.anonymous = true});
  EXPECT_TRUE(trace_slice_end("queue", "r1", {.auto_next_anon = true}));
  EXPECT_TRUE(trace_slice_end("step", "r1", {.auto_next_anon = true}));
  EXPECT_TRUE(trace_slice_end("last", "r1", {.thread_finish = true}));
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan queue = collector.get("queue");
  const ReceivedSpan step = collector.get("step");
  EXPECT_EQ(queue.end, step.start);
  EXPECT_EQ(step.end, collector.get("last").start);
  ASSERT_EQ(step.links.size(), 1U);
  EXPECT_EQ(step.links[0].span_id, queue.span_id);
  EXPECT_FALSE(step.error);
}

TEST(RequestTrace, ServerSpanThenItIsTheRoot) {
  Traced collector;
  {
    Span http = get_tracer("tuft.http").start_span("POST /v1/sample", {.kind = SpanKind::kServer});
    ASSERT_TRUE(trace_req_start("r1", {}, 0, "", {.server = &http}));
    trace_slice_start(TraceSpanName::PREPROCESS, "r1");
    trace_slice_end(TraceSpanName::PREPROCESS, "r1");
    EXPECT_EQ(trace_get_proc_propagate_context("r1").root, http.context());
    trace_req_finish("r1", 0, {{"tokens", 3}});
    EXPECT_TRUE(http.recording()) << "its owner ends it";
    const ContextScope scope(http.context());
    ASSERT_TRUE(trace_req_start("r2"));
    EXPECT_EQ(trace_get_proc_propagate_context("r2").root, http.context()) << "the current span is the default";
    trace_req_finish("r2");
  }
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan http = collector.get("POST /v1/sample");
  EXPECT_EQ(text_of(http.attributes, "rid"), "r1");
  EXPECT_EQ(collector.count("Req r1") + collector.count("Req r2"), 0U);
  const auto spans = collector.receiver.spans();
  const auto row = std::find_if(spans.begin(), spans.end(), [&](const ReceivedSpan& span) {
    return span.parent_span_id == http.span_id && text_of(span.attributes, "tokens") == "3";
  });
  ASSERT_NE(row, spans.end()) << "the attributes of the end are on the thread's span";
  EXPECT_EQ(collector.get("PREPROCESS").parent_span_id, row->span_id);
}

TEST(RequestTrace, UpstreamParentThenOwnRootBelowIt) {
  Traced collector;
  const SpanContext caller{7, 8, 9, 1};
  ASSERT_TRUE(trace_req_start("r1", {}, 0, "", {.parent = caller}));
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.get("Req r1").trace_id, caller.trace_id_hex());
  EXPECT_EQ(collector.get("Req r1").parent_span_id, caller.span_id_hex());
}

TEST(RequestTrace, BootstrapRoomThenRequestsShareItsSpan) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1", 0x2a, 0, "prefill"));
  ASSERT_TRUE(trace_req_start("r2", 0x2a, 0, "decode"));
  trace_req_finish("r1");
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.count("Bootstrap Room 0x2a"), 0U) << "one request is still in the room";
  trace_req_finish("r2");
  ASSERT_TRUE(collector.flush());
  ASSERT_EQ(collector.count("Bootstrap Room 0x2a"), 1U);
  const ReceivedSpan room = collector.get("Bootstrap Room 0x2a");
  EXPECT_EQ(text_of(room.attributes, "bootstrap_room"), "0x2a");
  EXPECT_EQ(collector.get("prefill Req r1").parent_span_id, room.span_id);
  EXPECT_EQ(collector.get("decode Req r2").parent_span_id, room.span_id);
}

TEST(RequestTrace, RoomOfAnotherServerThenNoSpanOfItsOwn) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1", 42, 0, "prefill"));
  ASSERT_TRUE(trace_req_start("plain"));
  trace_slice_start("send", "r1");
  const std::vector<std::string_view> rids{"r1", "plain", "nobody"};
  const std::string header = trace_get_remote_propagate_context(rids);
  EXPECT_FALSE(header.empty());
  trace_slice_end("send", "r1");
  trace_req_finish("r1");
  trace_req_finish("plain");
  // The other server knows nothing of this one except the header.
  ASSERT_TRUE(trace_set_remote_propagate_context(header));
  EXPECT_FALSE(trace_set_remote_propagate_context(header)) << "known already";
  ASSERT_TRUE(trace_req_start("r1b", 42, 0, "decode"));
  trace_slice_start("receive", "r1b");
  trace_slice_end("receive", "r1b");
  trace_req_finish("r1b");
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan room = collector.get("Bootstrap Room 0x2a");
  EXPECT_EQ(collector.count("Bootstrap Room 0x2a"), 1U);
  EXPECT_EQ(collector.get("decode Req r1b").parent_span_id, room.span_id);
  ASSERT_EQ(collector.get("receive").links.size(), 1U);
  EXPECT_EQ(collector.get("receive").links[0].span_id, collector.get("send").span_id);
  const std::vector<std::string_view> none{"plain"};
  EXPECT_EQ(trace_get_remote_propagate_context(none), "");
}

TEST(RequestTrace, BatchCallsThenEachRequestGetsItsSliceAndEvent) {
  Traced collector;
  for (const char* rid : {"a", "b"}) {
    ASSERT_TRUE(trace_req_start(rid));
    trace_slice_start("", rid, {.anonymous = true});
  }
  const std::vector<TraceBatchItem> items{{.rid = "a", .finished = false}, {.rid = "b", .finished = true}};
  trace_event_batch("scheduled", items);
  trace_slice_batch("decode_loop", items);
  trace_slice_batch("decode_loop", std::vector<TraceBatchItem>{{.rid = "a", .finished = true}});
  trace_req_finish("a");
  trace_req_finish("b");
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.count("decode_loop"), 3U);
  std::vector<std::string> batches;
  for (const ReceivedSpan& span : collector.receiver.spans()) {
    for (const auto& event : span.events) {
      EXPECT_EQ(text_of(event.attributes, "batch_size"), "2");
      batches.push_back(text_of(event.attributes, "bid"));
    }
  }
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0], batches[1]);
  EXPECT_EQ(batches[0].size(), 8U);
}

TEST(RequestTrace, ReportedStagesThenARowAndAChain) {
  Traced collector;
  const Nanos now = system_clock().monotonic();
  SpanContext root;
  SpanContext before;
  {
    const Span http = get_tracer("tuft.http").start_span("POST", {});
    root = http.context();
    before = report_stage(root, {TraceSpanName::PREPROCESS, now - 5 * kMillisecond, now - 4 * kMillisecond});
    on_another_thread([&] {
      trace_set_thread_info("engine", 0);
      const std::vector<Attribute> tokens{{"tokens", 16}};
      const std::vector<TraceStage> stages{
          {TraceSpanName::SCHEDULE, now - 4 * kMillisecond, now - 3 * kMillisecond},
          {TraceSpanName::PREFILL, now - 3 * kMillisecond, now - 2 * kMillisecond, Attributes(tokens)},
          {TraceSpanName::DECODE, now - 2 * kMillisecond, now}};
      const SpanContext last = report_stages(root, stages, before, {{"tuft.request_id", "q"}});
      EXPECT_EQ(last.trace_id_low, root.trace_id_low);
      EXPECT_EQ(report_stages(root, {}, before), before);
    });
  }
  ASSERT_TRUE(collector.flush());
  const ReceivedSpan row = collector.starting("engine [TP 0] (host:");
  EXPECT_EQ(row.parent_span_id, root.span_id_hex());
  EXPECT_EQ(row.end - row.start, static_cast<uint64_t>(4 * kMillisecond));
  EXPECT_EQ(text_of(row.attributes, "tuft.request_id"), "q");
  std::string previous = before.span_id_hex();
  for (const char* name : {"SCHEDULE", "PREFILL", "DECODE"}) {
    const ReceivedSpan stage = collector.get(name);
    EXPECT_EQ(stage.parent_span_id, row.span_id);
    ASSERT_EQ(stage.links.size(), 1U) << name;
    EXPECT_EQ(stage.links[0].span_id, previous);
    previous = stage.span_id;
  }
  EXPECT_EQ(text_of(collector.get("PREFILL").attributes, "tokens"), "16");
}

// The calls of docs/request-tracing.md; tests/system/test_documents.py compares them with the page.
TEST(RequestTrace, CallsOfThePageThenItsSpans) {
  Traced collector;
  const std::string rid = "r1";
  const uint64_t bootstrap_room = 7;
  const Nanos ts = 0;
  const char* const role = "prefill";
  struct {
    std::string trace;
  } message;

  trace_req_start(rid, bootstrap_room, ts, role);
  trace_slice_start(TraceSpanName::PREPROCESS, rid);
  trace_event("cache_hit", rid, ts, {{"tokens", 128}});
  trace_slice_add_attr(rid, {{"tuft.tokens", 512}});
  message.trace = trace_get_proc_propagate_context(rid).to_json();
  on_another_thread([&] {
    trace_set_thread_info("engine");
    trace_set_proc_propagate_context(rid, message.trace);
    trace_slice_start(TraceSpanName::SCHEDULE, rid);
    trace_slice_end(TraceSpanName::SCHEDULE, rid, {.thread_finish = true});
  });
  trace_slice_end(TraceSpanName::PREPROCESS, rid, {.thread_finish = true});
  trace_req_finish(rid, ts, {{"finish_reason", "stop"}});

  ASSERT_TRUE(collector.flush());
  const ReceivedSpan root = collector.get("prefill Req r1");
  EXPECT_EQ(text_of(root.attributes, "finish_reason"), "stop");
  const ReceivedSpan slice = collector.get("PREPROCESS");
  EXPECT_EQ(text_of(slice.attributes, "tuft.tokens"), "512");
  ASSERT_EQ(slice.events.size(), 1U);
  EXPECT_EQ(slice.events[0].name, "cache_hit");
  EXPECT_EQ(collector.starting("engine(host:").parent_span_id, root.span_id);
}

TEST(RequestTrace, StagesOfThePageThenALinkedChain) {
  Traced collector;
  const Nanos done = system_clock().monotonic();
  const Nanos first_token = done - kMillisecond;
  const Nanos started = first_token - kMillisecond;
  const Nanos queued = started - kMillisecond;
  const Span server = get_tracer("tuft.http").start_span("POST", {});
  const SpanContext root = server.context();
  const SpanContext previous = report_stage(root, {TraceSpanName::PREPROCESS, queued - kMillisecond, queued});

  const TraceStage stages[] = {{TraceSpanName::SCHEDULE, queued, started},
                               {TraceSpanName::PREFILL, started, first_token},
                               {TraceSpanName::DECODE, first_token, done}};
  report_stages(root, stages, previous);

  ASSERT_TRUE(collector.flush());
  std::string before = collector.get("PREPROCESS").span_id;
  for (const char* name : {"SCHEDULE", "PREFILL", "DECODE"}) {
    const ReceivedSpan stage = collector.get(name);
    ASSERT_EQ(stage.links.size(), 1U) << name;
    EXPECT_EQ(stage.links[0].span_id, before) << name;
    before = stage.span_id;
  }
}

TEST(RequestTrace, LogContextThenInnermostSpanOrRoot) {
  Traced collector;
  ASSERT_TRUE(trace_req_start("r1"));
  const SpanContext root = trace_get_proc_propagate_context("r1").root;
  on_another_thread([&] { EXPECT_EQ(trace_context("r1"), root); });
  trace_slice_start("work", "r1");
  const SpanContext slice = trace_context("r1");
  EXPECT_NE(slice, root);
  const auto info = get_trace_info("r1::n::3");
  ASSERT_TRUE(info) << "a choice of a request is found by the request";
  EXPECT_EQ(info->trace_id, root.trace_id_hex());
  EXPECT_EQ(info->span_id, slice.span_id_hex());
  EXPECT_FALSE(get_trace_info("r2"));
  trace_req_finish("r1");
  EXPECT_FALSE(get_trace_info("r1"));
}

}  // namespace
}  // namespace tuft::telemetry
