// The pictures of `tuft trace`, `tuft traces` and `tuft logs`, from answers of the observe API.
#include <cstdlib>
#include <ctime>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/tuft/terminal/lists.h"
#include "app/tuft/terminal/trace_view.h"

namespace tuft::terminal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Views : public ::testing::Test {
 protected:
  Views() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

Json span(const char* id, const Json& parent, const char* name, double start, double duration) {
  return {{"span_id", id},          {"parent_id", parent},         {"name", name},    {"worker", ""},
          {"start", start},         {"duration", duration},        {"failed", false}, {"status_message", ""},
          {"links", Json::array()}, {"attributes", Json::object()}};
}

constexpr double kStart = 1'764'043'927'000'000;

Json example_trace() {
  Json trace = {
      {"trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"}, {"start", kStart}, {"duration", 20'000}, {"truncated", false}};
  // Not in the order of the tree.
  trace["spans"] = {span("c", "b", "run_step", kStart + 10'000, 8'000),
                    span("a", nullptr, "POST /api/v1/optim_step", kStart, 2'000),
                    span("b", "a", "execute", kStart + 1'000, 19'000), span("d", "lost", "orphan", kStart + 5'000, 1)};
  trace["spans"][0]["worker"] = "tiny";
  trace["spans"][0]["failed"] = true;
  trace["spans"][0]["status_message"] = "nan in \x1b[31mgradient";
  trace["spans"][2]["links"] = {{{"trace_id", "00000000000000000000000000000001"}, {"span_id", "e"}}};
  trace["logs"] = {{{"time", kStart + 12'345},
                    {"level", "warning"},
                    {"event", "training.nonfinite"},
                    {"body", "a gradient"},
                    {"service", "tuft"},
                    {"worker", "tiny"},
                    {"trace_id", trace["trace_id"]},
                    {"span_id", "c"}},
                   {{"time", kStart + 1},
                    {"level", "info"},
                    {"event", "note"},
                    {"body", ""},
                    {"service", "tuft"},
                    {"trace_id", trace["trace_id"]},
                    {"span_id", nullptr}}};
  trace["critical_path"] = {{{"span_id", "b"}, {"start", kStart}, {"duration", 10'000}}};
  trace["explanation"] = {
      {"summary", "It waited 9 ms behind work of other users, and computed 8 ms."},
      {"parts",
       {{{"kind", "queue_others"}, {"seconds", 0.009}, {"share", 0.45}, {"text", "behind 2 others"}},
        {{"kind", "optimizer"}, {"seconds", 0.008}, {"share", 0.4}, {"text", ""}}}}};
  trace["linked_from"] = {{{"trace_id", "00000000000000000000000000000002"}, {"name", "retrieve_future"}}};
  return trace;
}

TEST_F(Views, TraceIsAWaterfall) {
  const TraceViewOptions options{.width = 80, .block_characters = false};
  EXPECT_EQ(plain_text(trace_lines(example_trace(), options)),
            R"(trace 4bf92f3577b34da6a3ce929d0e0e4736  20 ms  4 spans  1 failed
  2025-11-25 04:12:07.000

Where the time went
  It waited 9 ms behind work of other users, and computed 8 ms.
   45 %      9 ms  queue_others  behind 2 others
   40 %      8 ms  optimizer

SPAN                                  0                          20 ms  DURATION
  POST /api/v1/optim_step             ####                                  2 ms
 *  execute                            ###############################     19 ms
      -> trace 00000000000000000000000000000001
!     run_step [tiny]                                 #############         8 ms
        nan in \x1b[31mgradient
        04:12:07.012 warning tuft[tiny] training.nonfinite  a gradient
  orphan                                      #                             1 us

Log records outside of spans
  04:12:07.000 info    tuft note

Linked from
  <- trace 00000000000000000000000000000002  retrieve_future
)");
}

TEST_F(Views, TraceOfACycleEndsAndShowsEachSpanOnce) {
  Json trace = {{"trace_id", "x"}, {"start", kStart}, {"duration", 0}};
  trace["spans"] = {span("a", "b", "first", kStart, 1), span("b", "a", "second", kStart, 1),
                    span("c", "c", "own", kStart, 1)};
  const std::string text = plain_text(trace_lines(trace, {}));
  for (const char* name : {"first", "second", "own"}) {
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_EQ(text.find(name), text.rfind(name)) << text;
  }
}

TEST_F(Views, LongTraceSaysWhatItLeavesOut) {
  Json trace = example_trace();
  trace["truncated"] = true;
  const std::string text = plain_text(trace_lines(trace, {.spans_max = 2}));
  EXPECT_THAT(text, HasSubstr("... 2 more spans; --spans 4 shows them"));
  EXPECT_THAT(text, HasSubstr("The trace is longer than the server returns"));
  EXPECT_THAT(text, Not(HasSubstr("orphan")));
}

TEST_F(Views, DeepTraceIsShownToItsEnd) {
  Json trace = {{"trace_id", "x"}, {"start", kStart}, {"duration", 100}};
  for (int i = 0; i < 5'000; ++i) {
    const std::string id = "s" + std::to_string(i);
    trace["spans"].push_back(
        span(id.c_str(), i == 0 ? Json() : Json("s" + std::to_string(i - 1)), id.c_str(), kStart, 100));
  }
  EXPECT_THAT(plain_text(trace_lines(trace, {.spans_max = 10'000})), HasSubstr("s4999"));
}

TEST_F(Views, AnswersWithoutFieldsAreShown) {
  for (const char* text :
       {"{}", "[]", "null", R"({"spans":[{}],"logs":[null],"explanation":{"parts":[1]},"duration":"x"})"}) {
    EXPECT_FALSE(plain_text(trace_lines(Json::parse(text), {})).empty()) << text;
    EXPECT_FALSE(plain_text(trace_list_lines(Json::parse(text), 80)).empty()) << text;
    EXPECT_FALSE(log_line(Json::parse(text)).plain().empty()) << text;
  }
}

Json example_traces() {
  Json first = {{"trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"},
                {"root", {{"name", "POST /api/v1/asample"}}},
                {"start", kStart},
                {"duration", 12'345},
                {"spans", 9},
                {"failed_spans", 0},
                {"user", "alice"},
                {"session", "s-1"},
                {"sampler", "p-1"},
                {"operation", "sample"},
                {"base_model", "tiny"}};
  Json second = first;
  second["operation"] = "";
  second["failed_spans"] = 2;
  second["match"] = {{"name", "sampler.prefill"}};
  second["user"] = "b\x1b]0;owned\x07";
  return {first, second};
}

TEST_F(Views, TracesAreATable) {
  EXPECT_EQ(plain_text(trace_list_lines(example_traces(), 80)),
            R"(TRACE                             START         DURATION  WHAT
4bf92f3577b34da6a3ce929d0e0e4736  04:12:07.000   12.3 ms  asample
4bf92f3577b34da6a3ce929d0e0e4736  04:12:07.000   12.3 ms  ! sampler.prefill
)");
  EXPECT_EQ(
      plain_text(trace_list_lines(example_traces(), 0)),
      R"(TRACE                             START         DURATION  WHAT               OPERATION  SPANS  FAILED  USER               RUN, SAMPLER OR SESSION  MODEL
4bf92f3577b34da6a3ce929d0e0e4736  04:12:07.000   12.3 ms  asample            sample         9          alice              p-1                      tiny
4bf92f3577b34da6a3ce929d0e0e4736  04:12:07.000   12.3 ms  ! sampler.prefill  -              9       2  b\x1b]0;owned\x07  p-1                      tiny
)");
}

TEST_F(Views, LogRecordIsOneLineWhateverItHolds) {
  const Json record = {
      {"time", kStart},         {"level", "error"},
      {"event", "worker.died"}, {"body", "it ended\nwith\x1b[2J 9"},
      {"service", "tuft"},      {"worker", "tiny"},
      {"trace_id", "4bf9"},     {"attributes", {{"code", 9}, {"code.line.number", 3}, {"why", "x\ry"}}}};
  EXPECT_EQ(log_line(record).plain(),
            R"(04:12:07.000 error   tuft[tiny] worker.died  it ended\nwith\x1b[2J 9  code=9  why=x\x0dy  trace=4bf9)");
}

TEST_F(Views, JsonForProgramsIsPlainAscii) {
  EXPECT_EQ(safe_json({{"a", "\x1b\xc2\x9b\xff"}}), R"({"a":"\u001b\u009b\ufffd"})");
  EXPECT_EQ(safe_json(Json::parse(R"([1764043927123456.5, 0.25, 1e300, 7, {"b":[null,true]}, {}, []])")),
            R"([1764043927123456.5,0.25,1e+300,7,{"b":[null,true]},{},[]])");
}

TEST_F(Views, WorkersAreListedWithWhatPlacedThem) {
  const Json workers = Json::parse(R"([
    {"base_model": "m", "state": "dead", "joined": false, "host": "one", "pid": 7, "reason": "was killed"},
    {"base_model": "m", "state": "ready", "joined": true, "host": "two", "pid": 8, "address": "10.0.0.2",
     "launcher": {"k8s.pod.name": "tuft-0"}},
    {"base_model": "m", "state": "standby", "joined": true, "host": null, "pid": 0, "address": null, "launcher": {}}])");
  EXPECT_EQ(plain_text(worker_list_lines(workers, 0)),
            "MODEL  STATE    SINCE  HOST  PID  JOINED FROM   PLACED BY            REASON\n"
            "m      dead     -      one     7  started here  -                    was killed\n"
            "m      ready    -      two     8  10.0.0.2      k8s.pod.name=tuft-0  -\n"
            "m      standby  -      -       -  joined        -                    -\n");
}

}  // namespace
}  // namespace tuft::terminal
