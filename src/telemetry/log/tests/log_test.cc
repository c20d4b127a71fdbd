#include "telemetry/log.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "telemetry/log/log_line.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

using testing::text_of;

TEST(Log, InsideASpanThenTheRecordCarriesItsIds) {
  WithCollector collector;
  Span span = get_tracer("tuft.test").start_span("work");
  {
    const ContextScope scope(span.context());
    log_warning("session.created", "session created", {{"tuft.session_id", "s-1"}, {"tuft.count", 3}});
  }
  log_info("outside", "no span here");
  ASSERT_TRUE(collector.flush());
  const auto log = collector.log("session.created");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->trace_id, span.context().trace_id_hex());
  EXPECT_EQ(log->span_id, span.context().span_id_hex());
  EXPECT_EQ(log->severity_number, 13);
  EXPECT_EQ(log->severity, "WARN");
  EXPECT_EQ(log->body, "session created");
  EXPECT_EQ(text_of(log->attributes, "event.name"), "session.created");
  EXPECT_EQ(text_of(log->attributes, "tuft.session_id"), "s-1");
  EXPECT_EQ(text_of(log->attributes, "tuft.count"), "3");
  EXPECT_NE(text_of(log->attributes, "code.file.path").find("log_test.cc"), std::string::npos);
  EXPECT_FALSE(text_of(log->attributes, "code.line.number").empty());
  EXPECT_FALSE(text_of(log->attributes, "code.function.name").empty());
  EXPECT_EQ(text_of(log->resource, "service.name"), "tuft");
  const auto outside = collector.log("outside");
  ASSERT_TRUE(outside);
  EXPECT_EQ(outside->trace_id, "");
}

std::string lines_of(const std::function<void()>& act) {
  ::testing::internal::CaptureStderr();
  act();
  flush_logging();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, BelowTheLevelOfTheConsoleThenARecordAndNoLine) {
  WithCollector collector;
  const std::string lines = lines_of([] {
    log_debug("hidden", "not to be seen");
    log_info("shown", "to be seen");
  });
  ASSERT_TRUE(collector.flush());
  ASSERT_TRUE(collector.log("hidden"));
  EXPECT_EQ(collector.log("hidden")->severity, "DEBUG");
  EXPECT_TRUE(collector.log("shown"));
  EXPECT_EQ(lines.find("hidden"), std::string::npos);
  EXPECT_NE(lines.find("[shown] to be seen"), std::string::npos);
}

TEST(Log, BelowTheExportedLevelThenNoRecord) {
  WithCollector collector({.log_level = Severity::kWarning});
  const std::string lines = lines_of([] {
    log_debug("hidden", "not to be seen");
    log_info("line", "to be seen here");
    log_warning("both", "to be seen");
  });
  ASSERT_TRUE(collector.flush());
  EXPECT_FALSE(collector.log("hidden"));
  EXPECT_FALSE(collector.log("line"));
  EXPECT_TRUE(collector.log("both"));
  EXPECT_NE(lines.find("[line]"), std::string::npos);
  EXPECT_NE(lines.find("[both]"), std::string::npos);
}

TEST(Log, OnlyExportedThenItFollowsTheSamplingOfItsTrace) {
  WithCollector collector({.keep_errors = false});
  {
    const ContextScope scope(from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"));
    log_debug("unsampled", "left out with its trace");
    log_info("unsampled.line", "a line, and so a record");
  }
  const ContextScope scope(from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  log_debug("sampled", "kept with its trace");
  ASSERT_TRUE(collector.flush());
  EXPECT_FALSE(collector.log("unsampled"));
  EXPECT_TRUE(collector.log("unsampled.line"));
  EXPECT_TRUE(collector.log("sampled"));
}

TEST(Log, ManyOnlyExportedRecordsOfSpansThenNoneIsSuppressed) {
  constexpr size_t kRecords = 3000;
  WithCollector collector;
  const std::string lines = lines_of([] {
    const Span span = get_tracer("tuft.test").start_span("work");
    const ContextScope scope(span.context());
    for (size_t i = 0; i < kRecords; ++i) log_debug("operation.done", "one of many");
  });
  ASSERT_TRUE(collector.flush());
  const auto logs = collector.receiver.logs();
  const auto done =
      std::count_if(logs.begin(), logs.end(), [](const auto& log) { return log.event_name == "operation.done"; });
  EXPECT_EQ(static_cast<size_t>(done), kRecords);
  EXPECT_EQ(lines, "");
}

TEST(Log, ManyLinesOfSpansThenLinesAreSuppressedAndNoRecord) {
  constexpr size_t kRecords = 3000;
  WithCollector collector;
  const std::string lines = lines_of([] {
    const Span span = get_tracer("tuft.test").start_span("work");
    const ContextScope scope(span.context());
    for (size_t i = 0; i < kRecords; ++i) log_warning("operation.refused", "one of many");
  });
  ASSERT_TRUE(collector.flush());
  const auto logs = collector.receiver.logs();
  EXPECT_EQ(
      std::count_if(logs.begin(), logs.end(), [](const auto& log) { return log.event_name == "operation.refused"; }),
      static_cast<ptrdiff_t>(kRecords));
  EXPECT_LT(std::count(lines.begin(), lines.end(), '\n'), static_cast<ptrdiff_t>(kRecords / 2));
}

TEST(Log, InsideSharedKeysThenTheRecordCarriesThem) {
  WithCollector collector;
  {
    Span span = get_tracer("tuft.test").start_span("work");
    span.share({{"tuft.session_id", "s-1"}, {"tuft.request_id", "r-1"}});
    const ContextScope scope(span.context());
    log_debug("operation.done", "done", {{"tuft.request_id", "own"}});
  }
  ASSERT_TRUE(collector.flush());
  const auto log = collector.log("operation.done");
  ASSERT_TRUE(log);
  EXPECT_EQ(text_of(log->attributes, "tuft.session_id"), "s-1");
  EXPECT_EQ(text_of(log->attributes, "tuft.request_id"), "own");
}

TEST(Log, ManyThreadsThenWholeLinesInJson) {
  init_logging({.level = Severity::kInfo, .format = LogFormat::kJson, .process = "worker"});
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) log_info("many", "line \"quoted\"\nnext", {{"i", i}, {"text", "a\tb"}});
    });
  }
  for (auto& thread : threads) thread.join();
  flush_logging();
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << line;
    EXPECT_EQ(json["event"], "many");
    EXPECT_EQ(json["message"], "line \"quoted\"\nnext");
    EXPECT_EQ(json["process"], "worker");
    EXPECT_EQ(json["level"], "INFO");
    EXPECT_EQ(json["text"], "a\tb");
  }
  EXPECT_EQ(count, 800);
}

internal::LogLine line_of(std::string_view message, Attributes attributes) {
  internal::LogLine line;
  line.time = 1'700'000'000 * kSecond + 42 * kMillisecond;
  line.process = "tuft";
  line.event = "session.created";
  line.message = message;
  line.attributes = attributes;
  return line;
}

TEST(LogLine, TextThenKeysAndValuesInOrder) {
  std::string out;
  internal::append_text(out,
                        line_of("session created", {{"tuft.session_id", "abc"}, {"n", 2}, {"f", 0.5}, {"b", true}}));
  EXPECT_EQ(
      out,
      "2023-11-14T22:13:20.042Z INFO    tuft [session.created] session created tuft.session_id=abc n=2 f=0.5 b=true");
}

TEST(LogLine, ValueThatForgesALineThenItIsEscaped) {
  std::string out;
  internal::append_text(out, line_of("a\nb", {{"name", "x\n2023 ERROR forged"}, {"empty", ""}, {"esc", "\x1b[31m"}}));
  EXPECT_EQ(out.find('\n'), std::string::npos);
  EXPECT_EQ(out.find('\x1b'), std::string::npos);
  EXPECT_NE(out.find("a\\nb name=\"x\\n2023 ERROR forged\" empty=\"\" esc=\"\\u001b[31m\""), std::string::npos) << out;
}

TEST(LogLine, JsonWithContextAndBrokenUtf8ThenValidJson) {
  const Attribute attributes[] = {{"broken", "\xff"}, {"nan", std::nan("")}};
  internal::LogLine line = line_of("m", std::span<const Attribute>(attributes));
  line.context = from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  std::string out;
  internal::append_json(out, line);
  const auto json = nlohmann::json::parse(out);
  EXPECT_EQ(json["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(json["span_id"], "00f067aa0ba902b7");
  EXPECT_TRUE(json["nan"].is_null());
  EXPECT_EQ(json["broken"], "\xef\xbf\xbd");
}

TEST(Utf8, ValidAndBrokenThenToldApart) {
  EXPECT_TRUE(is_utf8("grün 漢 😀"));
  for (const char* broken :
       {"\x80", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8", "\xe2\x82"}) {
    EXPECT_FALSE(is_utf8(broken));
    EXPECT_TRUE(is_utf8(internal::to_utf8(broken)));
  }
}

TEST(Severity, WordsThenParsedOrRefused) {
  EXPECT_EQ(*parse_severity("warn"), Severity::kWarning);
  EXPECT_EQ(*parse_severity("debug"), Severity::kDebug);
  EXPECT_FALSE(parse_severity("loud").ok());
}

}  // namespace
}  // namespace tuft::telemetry
