#include "mcp/tools.h"

#include <limits>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mcp/json.h"
#include "mcp/protocol.h"
#include "mcp/tests/fake_observer.h"

namespace tuft::mcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kTraceId = "4bf92f3577b34da6a3ce929d0e0e4736";

class Tools : public ::testing::Test {
 protected:
  Result<Json> call(const char* name, const char* text = "{}") {
    const Input input = Input::parse(text);
    Arguments arguments(input, clock_);
    const auto hold_memory = [this](int64_t bytes) {
      held_ += bytes;
      return held_ <= memory_max_
                 ? Status()
                 : Status(Error{ErrorCode::kResourceExhausted, "over limits.queued_bytes_per_user_max", ""});
    };
    return find_tool(name)->call({observer_, user_, clock_, "1.2.3", hold_memory}, arguments);
  }
  Json value(const char* name, const char* text = "{}") {
    Result<Json> result = call(name, text);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? *result : Json();
  }
  std::string refusal(const char* name, const char* text) {
    const Result<Json> result = call(name, text);
    EXPECT_FALSE(result.ok()) << text;
    return result.ok() ? "" : result.error().message;
  }

  FakeObserver observer_;
  control::UserId user_{"alice"};
  FakeClock clock_;
  int64_t held_ = 0, memory_max_ = std::numeric_limits<int64_t>::max();
};

// The answer is the smaller part of it: a trace of 64 MiB may be read for 60 spans.
TEST_F(Tools, WhatIsReadIsChargedBeforeItIsWritten) {
  observer_.trace_known = kTraceId;
  observer_.observed.trace.spans.resize(10'000);
  observer_.observed.trace.memory_bytes = 50'000'000;
  observer_.log_page.logs.resize(200);
  observer_.log_page.memory_bytes = 8'000'000;
  observer_.metric_answer.memory_bytes = 7'500'000;
  const std::string arguments = R"({"trace_id":")" + std::string(kTraceId) + R"("})";
  value("get_trace", arguments.c_str());
  EXPECT_GT(std::exchange(held_, 0), 60'000'000);
  value("search_logs");
  EXPECT_GT(std::exchange(held_, 0), 8'000'000 + 200 * 1'000);
  const char* metric = R"({"name":"m","fn":"last"})";
  value("query_metric", metric);
  EXPECT_EQ(std::exchange(held_, 0), 7'500'000);
  memory_max_ = 7'000'000;
  EXPECT_THAT(refusal("get_trace", arguments.c_str()), HasSubstr("queued_bytes_per_user_max"));
  EXPECT_THAT(refusal("search_logs", "{}"), HasSubstr("queued_bytes_per_user_max"));
  EXPECT_THAT(refusal("query_metric", metric), HasSubstr("queued_bytes_per_user_max"));
}

TEST_F(Tools, TracesAreAskedForAsTheArgumentsSay) {
  value("find_traces", R"({"session":"s","run":"r","sampler":"p","request":"q","operation":"sample","base_model":"m",
    "user":"u","service":"v","name":"n*","text":"t","status":"error","min_duration_ms":1.5,"max_duration_ms":2000,
    "from":"-15m","until":"-1m","limit":7,"cursor":"c"})");
  const telemetry_store::Filter& filter = observer_.filter_asked;
  EXPECT_EQ(observer_.asked.str(), "alice");
  EXPECT_EQ(filter.session + filter.run + filter.sampler + filter.request + filter.operation, "srpqsample");
  EXPECT_EQ(filter.base_model + filter.user + filter.service + filter.name + filter.text, "muvn*t");
  EXPECT_EQ(filter.failed, true);
  EXPECT_EQ(filter.duration_min, 1'500'000);
  EXPECT_EQ(filter.duration_max, 2 * kSecond);
  EXPECT_EQ(filter.time.from, clock_.wall() - 900 * kSecond);
  EXPECT_EQ(filter.time.until, clock_.wall() - 60 * kSecond);
  EXPECT_EQ(observer_.page_asked.limit, 7u);
  EXPECT_EQ(observer_.page_asked.cursor, "c");
}

TEST_F(Tools, TracesOfTheLastHourAreTheDefault) {
  value("find_traces");
  EXPECT_EQ(observer_.filter_asked.time.from, clock_.wall() - 3600 * kSecond);
  EXPECT_EQ(observer_.filter_asked.time.until, 0);
  EXPECT_EQ(observer_.filter_asked.failed, std::nullopt);
  EXPECT_EQ(observer_.page_asked.limit, 20u);
  value("find_traces", R"({"from":"2026-07-13T00:00:00Z","status":null})");
  EXPECT_EQ(observer_.filter_asked.time.from, 1'783'900'800 * kSecond);
}

TEST_F(Tools, WrongArgumentsAreNamedWithTheRule) {
  EXPECT_THAT(refusal("find_traces", R"({"sesion":"s"})"), AllOf(HasSubstr("'sesion'"), HasSubstr("session")));
  EXPECT_THAT(refusal("find_traces", R"({"session":5})"), HasSubstr("'session' must be a text"));
  EXPECT_THAT(refusal("find_traces", R"({"text":"a\u001b"})"), HasSubstr("without control characters"));
  EXPECT_THAT(refusal("find_traces", R"({"limit":101})"), HasSubstr("between 1 and 100"));
  EXPECT_THAT(refusal("find_traces", R"({"limit":1.5})"), HasSubstr("'limit'"));
  EXPECT_THAT(refusal("find_traces", R"({"status":"bad"})"), HasSubstr("one of ok, error"));
  EXPECT_THAT(refusal("find_traces", R"({"min_duration_ms":-1})"), HasSubstr("'min_duration_ms'"));
  EXPECT_THAT(refusal("find_traces", R"({"from":"yesterday"})"), HasSubstr("-15m"));
  EXPECT_THAT(refusal("find_traces", R"({"from":"-1m","until":"-2m"})"), HasSubstr("later"));
  for (const char* age : {"-1e3s", "--1m", "-m", "-nanh", "-99999999999999d"}) {
    EXPECT_THAT(refusal("find_traces", (R"({"from":")" + std::string(age) + R"("})").c_str()), HasSubstr("'from'"))
        << age;
  }
  EXPECT_THAT(refusal("get_trace", "{}"), HasSubstr("'trace_id' is required"));
  EXPECT_THAT(refusal("get_trace", R"({"trace_id":"../x"})"), HasSubstr("32 digits"));
  EXPECT_THAT(refusal("server_status", R"({"verbose":true})"), HasSubstr("this tool has none"));
  EXPECT_THAT(refusal("query_metric", R"({"name":"m","fn":"rate","by":["a",1]})"), HasSubstr("'by'"));
  EXPECT_THAT(refusal("query_metric", R"({"name":"m","fn":"rate","where":{"a":1}})"), HasSubstr("'where'"));
  EXPECT_THAT(refusal("query_metric", R"({"name":"m"})"), HasSubstr("'fn' is required"));
}

TEST_F(Tools, TextsAreCapped) {
  const std::string longest(512, 'x');
  EXPECT_TRUE(call("find_traces", (R"({"text":")" + longest + R"("})").c_str()).ok());
  EXPECT_FALSE(call("find_traces", (R"({"text":")" + longest + R"(y"})").c_str()).ok());
}

TEST_F(Tools, TraceSummariesHaveNamesAndUnits) {
  telemetry_store::TraceSummary trace;
  trace.trace_id = kTraceId;
  trace.root_name = "POST /api/v1/asample";
  trace.root_span_id = "a";
  trace.owner = "alice";
  trace.start = 1'783'900'800 * kSecond;
  trace.duration = 1'500'000;
  trace.spans = 9;
  trace.failed_spans = 1;
  trace.matched_span_id = "b";
  trace.matched_name = "DECODE";
  trace.matched_duration = 1'000'000;
  telemetry_store::TracePage page;
  page.traces = {trace};
  page.next = "more";
  observer_.trace_page = page;
  const Json found = value("find_traces");
  EXPECT_EQ(to_text(found),
            R"({"traces":[{"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","root":"POST /api/v1/asample",)"
            R"("service":null,"start":"2026-07-13T00:00:00.000000Z","duration_ms":1.5,"spans":9,)"
            R"("failed_spans":1,"user":"alice","matched_span":{"span_id":"b","name":"DECODE",)"
            R"("duration_ms":1.0}}],"next_cursor":"more"})");
}

telemetry_store::LogRecord record(const std::string& event, const std::string& body) {
  telemetry_store::LogRecord made;
  made.time = kSecond;
  made.severity = 17;
  made.event = event;
  made.body = body;
  return made;
}

telemetry_store::Span span(const char* id, Nanos start, Nanos duration) {
  telemetry_store::Span made;
  made.span_id = id;
  made.name = id;
  made.start = start;
  made.duration = duration;
  return made;
}

TEST_F(Tools, TraceComesWithItsExplanation) {
  observer_.trace_known = kTraceId;
  auto& trace = observer_.observed.trace;
  trace.spans = {span("root", kSecond, 10 * kMillisecond), span("child", kSecond + kMillisecond, 2 * kMillisecond)};
  trace.spans[1].attributes = {{"text", "v"}, {"number", "5", false}, {"broken", "{", false}};
  trace.logs.push_back(record("e", "b"));
  observer_.observed.critical_path = {{0, kSecond, 8 * kMillisecond}, {1, kSecond, 2 * kMillisecond}};
  observer_.observed.explanation = {"It waited.",
                                    {{control::PartKind::kQueueOthers, 0.008, 0.8, "behind bob", "root"}}};
  const Json found = value("get_trace", (R"({"trace_id":")" + std::string(kTraceId) + R"("})").c_str());
  EXPECT_EQ(found["explanation"]["summary"], "It waited.");
  EXPECT_EQ(found["explanation"]["parts"][0]["kind"], "queue_others");
  EXPECT_EQ(found["duration_ms"], 10);
  EXPECT_EQ(found["critical_path"][1]["name"], "child");
  EXPECT_EQ(found["spans"][1]["start_ms"], 1);
  EXPECT_EQ(found["spans"][1]["attributes"], (Json{{"text", "v"}, {"number", 5}, {"broken", "{"}}));
  EXPECT_EQ(found["logs"][0]["level"], "error");
  const Json short_one =
      value("get_trace", (R"({"attributes":false,"trace_id":")" + std::string(kTraceId) + R"("})").c_str());
  EXPECT_FALSE(short_one["spans"][1].contains("attributes"));
}

TEST_F(Tools, LongTraceKeepsThePathFailuresAndTheLongest) {
  observer_.trace_known = kTraceId;
  auto& spans = observer_.observed.trace.spans;
  for (int i = 0; i < 5'000; ++i) spans.push_back(span(("s" + std::to_string(i)).c_str(), kSecond + i, i));
  spans[3].failed = true;
  observer_.observed.critical_path = {{7, kSecond, 1}, {99'999, kSecond, 1}};
  const Json found = value("get_trace", (R"({"spans_max":3,"trace_id":")" + std::string(kTraceId) + R"("})").c_str());
  EXPECT_EQ(found["spans_total"], 5'000);
  ASSERT_EQ(found["spans"].size(), 3u);
  EXPECT_EQ(found["spans"][0]["name"], "s3");
  EXPECT_EQ(found["spans"][1]["name"], "s7");
  EXPECT_EQ(found["spans"][2]["name"], "s4999");
}

TEST_F(Tools, AnswersStaySmallWhateverProgramsRecord) {
  observer_.trace_known = kTraceId;
  const std::string big(4'000, 'x');
  auto& spans = observer_.observed.trace.spans;
  for (int i = 0; i < 600; ++i) {
    spans.push_back(span(big.c_str(), kSecond, i));
    spans.back().span_id = std::to_string(i);
    spans.back().status_message = big;
    for (int k = 0; k < 50; ++k) spans.back().attributes.push_back({"k" + std::to_string(k), big});
    spans.back().links.resize(100);
  }
  for (int i = 0; i < 200; ++i) {
    observer_.log_page.logs.push_back(record(big, big));
    observer_.log_page.logs.back().attributes = {{"k", big}};
  }
  observer_.observed.trace.logs = observer_.log_page.logs;
  observer_.observed.trace.linked_from.resize(10'000);
  const Json trace = value("get_trace", (R"({"spans_max":500,"trace_id":")" + std::string(kTraceId) + R"("})").c_str());
  EXPECT_LT(to_text(trace).size(), 2'000'000u);
  EXPECT_LT(to_text(value("search_logs", R"({"limit":200})")).size(), 1'000'000u);
}

TEST_F(Tools, TextThatIsNotUtf8IsStillJson) {
  observer_.log_page.logs.push_back(record("\xff", std::string(1'500, '\xe4')));
  EXPECT_TRUE(Input::accept(to_text(value("search_logs"))));
}

TEST_F(Tools, LogsAreAskedForByLevelAndEvent) {
  value("search_logs", R"({"level":"warning","event":"worker.*","trace_id":"t","span_id":"s","limit":5})");
  EXPECT_EQ(observer_.logs_asked.severity_min, 13);
  EXPECT_EQ(observer_.logs_asked.filter.name, "worker.*");
  EXPECT_EQ(observer_.logs_asked.trace_id + observer_.logs_asked.span_id, "ts");
  EXPECT_EQ(observer_.logs_asked.page.limit, 5u);
}

TEST_F(Tools, MetricsAreFoundByText) {
  observer_.infos.resize(2);
  observer_.infos[0].name = "tuft.a";
  observer_.infos[0].description = "Time of X";
  observer_.infos[0].labels = {{"base_model", {"tiny"}}};
  observer_.infos[1].name = "tuft.b";
  observer_.infos[1].description = "other";
  EXPECT_EQ(value("list_metrics", R"({"text":"TIME of"})")["metrics"].size(), 1u);
  const Json one = value("list_metrics", R"({"limit":1})");
  EXPECT_EQ(one["metrics"][0]["labels"]["base_model"][0], "tiny");
  EXPECT_EQ(one["left_out"], 1);
}

TEST_F(Tools, LabelsOfMetricsTakeABoundedPartOfTheAnswer) {
  observer_.infos.resize(300);
  for (telemetry_store::MetricInfo& info : observer_.infos) {
    info.name = "own";
    for (int i = 0; i < 32; ++i) info.labels["key" + std::to_string(i)].assign(2, std::string(256, 'x'));
  }
  const Json found = value("list_metrics", R"({"limit":300})");
  EXPECT_EQ(found["metrics"].size(), 300U);
  EXPECT_LT(to_text(found).size(), 300'000U);
}

TEST_F(Tools, MetricIsComputedInAsManyPointsAsAskedFor) {
  observer_.metric_answer.start = kSecond;
  observer_.metric_answer.step = 30 * kSecond;
  observer_.metric_answer.series = {{{{"base_model", "tiny"}}, {1.5, std::numeric_limits<double>::quiet_NaN()}}};
  const Json found = value(
      "query_metric", R"({"name":"m","fn":"p95","by":["base_model"],"where":{"kind":"x"},"from":"-10m","points":20})");
  EXPECT_EQ(observer_.metric_asked.function, telemetry_store::MetricFunction::kP95);
  EXPECT_EQ(observer_.metric_asked.step, 30 * kSecond);
  EXPECT_EQ(observer_.metric_asked.where.at("kind"), "x");
  EXPECT_EQ(to_text(found["series"]), R"([{"labels":{"base_model":"tiny"},"points":[1.5,null]}])");
  EXPECT_EQ(found["name"], "m");
}

TEST_F(Tools, CurveOfARunComesWithAdvice) {
  observer_.details.run.run = control::RunId("r");
  observer_.details.advice = {"Send the next batch before fetching the result."};
  telemetry_store::RunStep step;
  step.step = 4;
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.grad_norm = 2;
  observer_.run_steps = {step};
  const Json found = value("run_curve", R"({"run":"r","after":3,"points":10})");
  EXPECT_EQ(found["steps"][0]["loss"], nullptr);
  EXPECT_EQ(found["steps"][0]["grad_norm"], 2);
  EXPECT_EQ(found["advice"][0], "Send the next batch before fetching the result.");
  EXPECT_EQ(observer_.after_asked, 3);
  EXPECT_EQ(observer_.points_asked, 10u);
  EXPECT_EQ(refusal("run_curve", R"({"run":"other"})"), "there is no such run");
}

TEST_F(Tools, RunsHavePages) {
  observer_.run_rows.rows.resize(2);
  observer_.run_rows.next = 12;
  const Json found = value("list_runs", R"({"limit":2,"offset":10})");
  EXPECT_EQ(found["next_offset"], 12);
  EXPECT_EQ(observer_.part_asked.offset, 10u);
  observer_.run_rows.next = std::nullopt;
  EXPECT_TRUE(value("list_runs")["next_offset"].is_null());
}

TEST_F(Tools, UsersSeeThemselvesAndOperatorsAll) {
  observer_.tenant_rows.resize(2);
  observer_.tenant_rows[0].user = control::UserId("alice");
  observer_.tenant_rows[0].quotas = {{"limits.runs_per_user_max", 2, 0}};
  observer_.tenant_rows[1].user = control::UserId("bob");
  const Json own = value("list_tenants");
  ASSERT_EQ(own["users"].size(), 1u);
  EXPECT_EQ(own["users"][0]["user"], "alice");
  EXPECT_TRUE(own["users"][0]["quotas"][0]["max"].is_null());
  user_ = control::UserId("root");
  EXPECT_EQ(value("list_tenants")["users"].size(), 2u);
}

TEST_F(Tools, HowMuchTheStoreHoldsIsForOperators) {
  observer_.system_view.store.emplace().spans = 5;
  EXPECT_FALSE(value("server_status")["telemetry_store"].contains("spans"));
  observer_.system_view.is_whole = true;
  EXPECT_EQ(value("server_status")["telemetry_store"]["spans"], 5);
}

TEST_F(Tools, StoreThatIsOffIsSaidInWords) {
  observer_.trace_page = failed_precondition("this server keeps no telemetry");
  EXPECT_EQ(refusal("find_traces", "{}"), "this server keeps no telemetry");
  EXPECT_TRUE(value("server_status")["telemetry_store"].is_null());
}

}  // namespace
}  // namespace tuft::mcp
