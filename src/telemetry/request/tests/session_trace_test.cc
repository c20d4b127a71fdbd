// Tests the archive of finished spans and the session traces made from it.
#include "telemetry/request/session_trace.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "telemetry/export/span_archive.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

using Json = nlohmann::json;

const Tracer& tracer() {
  static const Tracer instance = get_tracer("tuft.test");
  return instance;
}

Json spans_of(const std::string& session) {
  const std::vector<TraceId> traces = archived_traces(session, 100);
  const std::vector<std::string> requests = {archived_spans(traces, size_t{1} << 20)};
  const SessionTrace trace = make_session_trace(session, requests);
  if (trace.spans == 0) return Json::array();
  Json spans = Json::array();
  const Json file = Json::parse(trace.json);
  for (const Json& resource : file["resourceSpans"]) {
    for (const Json& scope : resource["scopeSpans"]) {
      for (const Json& span : scope["spans"]) spans.push_back(span);
    }
  }
  EXPECT_EQ(spans.size(), trace.spans);
  return spans;
}

std::vector<std::string> names_of(const std::string& session) {
  std::vector<std::string> names;
  for (const Json& span : spans_of(session)) names.push_back(span["name"]);
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

TEST(SessionTrace, SpansOfTheSessionAndThoseBetweenThem) {
  WithCollector collector;
  {
    const Span root = tracer().start_span("root", {.parent = {}});
    const Span mine =
        tracer().start_span("mine", {.attributes = {{"tuft.session_id", "s1"}}, .parent = root.context()});
    const Span below = tracer().start_span("below", {.parent = mine.context()});
    const Span other = tracer().start_span("other", {.attributes = {{"tuft.session_id", "s2"}}, .parent = {}});
    const Span nobody = tracer().start_span("nobody", {.parent = {}});
  }
  EXPECT_EQ(names_of("s1"), (Names{"below", "mine", "root"}));
  EXPECT_EQ(names_of("s2"), Names{"other"});
  EXPECT_EQ(names_of("s3"), Names{});
}

TEST(SessionTrace, ATraceOfTwoSessionsThenEachGetsItsOwn) {
  WithCollector collector;
  {
    const Span shared = tracer().start_span("shared", {.parent = {}});
    const SpanContext above = shared.context();
    const Span one = tracer().start_span("one", {.attributes = {{"tuft.session_id", "s1"}}, .parent = above});
    const Span below = tracer().start_span("below one", {.parent = one.context()});
    const Span two = tracer().start_span("two", {.attributes = {{"tuft.session_id", "s2"}}, .parent = above});
    const Span under = tracer().start_span("below two", {.parent = two.context(), .link = one.context()});
  }
  EXPECT_EQ(names_of("s1"), (Names{"below one", "one"}));
  EXPECT_EQ(names_of("s2"), (Names{"below two", "two"}));
  for (const Json& span : spans_of("s2")) EXPECT_FALSE(span.contains("links")) << span.dump();
}

TEST(SessionTrace, APassThatOthersShareThenNotHowMuchIsTheirs) {
  WithCollector collector;
  {
    Span pass = tracer().start_span("pass", {.attributes = {{"tuft.session_id", "s1"}}, .parent = {}});
    pass.set_attributes({{"tuft.adapters", 2}, {"tuft.tokens", 777888999000111}, {"tuft.backward", true}});
    Span alone = tracer().start_span("alone", {.attributes = {{"tuft.session_id", "s1"}}, .parent = {}});
    alone.set_attributes({{"tuft.adapters", 1}, {"tuft.tokens", 555}});
  }
  const std::string text = spans_of("s1").dump();
  EXPECT_EQ(text.find("777888999000111"), std::string::npos);
  EXPECT_NE(text.find("555"), std::string::npos);
  EXPECT_NE(text.find("tuft.backward"), std::string::npos);
}

TEST(SessionTrace, ARefusedRequestForItIsNotItsOwn) {
  WithCollector collector;
  {
    Span intruder = tracer().start_span("intruder", {.attributes = {{"tuft.session_id", "s1"}}, .parent = {}});
    intruder.set_attribute("http.response.status_code", 403);
  }
  EXPECT_EQ(names_of("s1"), Names{});
}

TEST(SessionTrace, OneFileForPerfettoAndForOpenTelemetry) {
  WithCollector collector;
  {
    const Span root =
        tracer().start_span("a \"quoted\" name", {.attributes = {{"tuft.session_id", "s1"}}, .parent = {}});
    Span below = tracer().start_span("below", {.parent = root.context()});
    below.record_error(internal_error("it broke"));
  }
  const std::vector<std::string> requests = {archived_spans(archived_traces("s1", 10), size_t{1} << 20)};
  const SessionTrace trace = make_session_trace("s1", requests);
  ASSERT_TRUE(trace.json.starts_with("{\"traceEvents\":["));
  const Json file = Json::parse(trace.json);
  EXPECT_EQ(file["resourceSpans"].size(), 1U);
  std::vector<Json> complete;
  for (const Json& event : file["traceEvents"]) {
    if (event["ph"] == "X") complete.push_back(event);
  }
  ASSERT_EQ(complete.size(), 2U);
  EXPECT_EQ(complete[0]["name"], "a \"quoted\" name");
  EXPECT_EQ(complete[0]["tid"], complete[1]["tid"]) << "one lies in the other";
  EXPECT_LE(complete[0]["ts"].get<double>(), complete[1]["ts"].get<double>());
  EXPECT_EQ(complete[1]["args"]["error"], "it broke");
}

TEST(SpanArchive, FullThenTheOldestGo) {
  internal::SpanArchive archive(4096, "");
  const std::string span(200, 'x');
  for (uint64_t i = 1; i <= 100; ++i) archive.add({i, i}, "s", "scope", span);
  EXPECT_LE(archive.bytes(), 4096U);
  const auto traces = archive.traces_of("s", 1000);
  ASSERT_FALSE(traces.empty());
  EXPECT_LT(traces.size(), 20U);
  EXPECT_EQ(traces.back().low, 100U);
  EXPECT_EQ(traces.front().low, 100U - traces.size() + 1);
  EXPECT_EQ(archive.traces_of("s", 2), (std::vector<TraceId>{{99, 99}, {100, 100}}));
  archive.add({7, 7}, "s", "scope", std::string(4096, 'x'));
  EXPECT_EQ(archive.traces_of("s", 1000), traces) << "what is over half of it is not kept";
}

TEST(SpanArchive, MoreThanIsAskedForThenTheNewest) {
  internal::SpanArchive archive(size_t{1} << 16, "");
  for (int i = 0; i < 10; ++i) archive.add({1, 1}, "s", "scope", std::string(100, static_cast<char>('a' + i)));
  const std::vector<TraceId> trace = {{1, 1}};
  const std::string spans = archive.spans_of(trace, 250);
  EXPECT_EQ(spans.find('h'), std::string::npos);
  EXPECT_NE(spans.find("iii"), std::string::npos);
  EXPECT_NE(spans.find("jjj"), std::string::npos);
}

TEST(SpanArchive, OffThenNothingIsKept) {
  TelemetryConfig config;
  config.trace_archive_bytes = 0;
  WithCollector collector(config);
  { const Span span = tracer().start_span("mine", {.attributes = {{"tuft.session_id", "s1"}}, .parent = {}}); }
  EXPECT_FALSE(archives_spans());
  EXPECT_TRUE(archived_traces("s1", 10).empty());
}

}  // namespace
}  // namespace tuft::telemetry
