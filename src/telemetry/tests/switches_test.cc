// Tests the switches of recording: the metrics page alone, single signals, levels, and floods of one event.
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "telemetry/exposition.h"
#include "telemetry/log.h"
#include "telemetry/log/log_limit.h"
#include "telemetry/testing/http_receiver.h"
#include "telemetry/testing/program_metrics.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

void record_one_of_each() {
  const Span span = get_tracer("tuft.test").start_span("switched");
  log_info("test.switched", "a line");
  testing::program_metrics().created.add(1, {{"operation_type", "switched"}});
}

bool metric_is_there() {
  return render_metrics(ExpositionFormat::kPrometheusText, {}).find("operation_type=\"switched\"") != std::string::npos;
}

double metric_value() {
  const std::string text = render_metrics(ExpositionFormat::kPrometheusText, {});
  const std::string series = "tuft_futures_created_total{operation_type=\"switched\"} ";
  const size_t at = text.find(series);
  return at == std::string::npos ? 0 : std::atof(text.c_str() + at + series.size());
}

TEST(Switches, TelemetryOffAndAMetricsEndpointThenMetricsAlone) {
  ASSERT_TRUE(init_telemetry({.enabled = false}).ok());
  EXPECT_FALSE(telemetry_enabled());
  EXPECT_FALSE(get_tracer("tuft.test").start_span("off").recording());
  const double before = metric_value();
  record_one_of_each();
  EXPECT_EQ(metric_value(), before + 1);
  EXPECT_TRUE(flush_telemetry(kSecond));
  shutdown_telemetry();
  record_one_of_each();
  EXPECT_EQ(metric_value(), before + 1) << "nothing after the end";
}

// The three variables as Transformers' guide to metrics sets them; no variable names a protocol.
TEST(Switches, AddressesWithAPathThenHttpAndTheStartSaysSo) {
  testing::HttpReceiver receiver;
  const std::map<std::string, std::string> variables{
      {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", receiver.endpoint() + "/api/v1/otlp/v1/metrics"},
      {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.endpoint() + "/v1/traces"},
      {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", receiver.endpoint() + "/v1/logs"}};
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  ASSERT_TRUE(init_telemetry({.enabled = true}).ok());
  record_one_of_each();
  EXPECT_TRUE(flush_telemetry(20 * kSecond));
  shutdown_telemetry(5 * kSecond);
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  std::map<std::string, std::string> bodies;
  for (const testing::HttpRequest& request : receiver.requests()) bodies[request.path] += request.body;
  EXPECT_NE(bodies["/api/v1/otlp/v1/metrics"].find("tuft.futures.created"), std::string::npos);
  EXPECT_NE(bodies["/v1/traces"].find("switched"), std::string::npos);
  for (const auto& [name, value] : variables)
    EXPECT_NE(bodies["/v1/logs"].find("(by the address in " + name), std::string::npos) << name;
}

TEST(Switches, NeitherThenNothing) {
  ASSERT_TRUE(init_telemetry({.enabled = false, .metrics_endpoint = false}).ok());
  const double before = metric_value();
  record_one_of_each();
  EXPECT_EQ(metric_value(), before);
  shutdown_telemetry();
}

TEST(Switches, DisabledSdkThenMetricsForTheEndpointAlone) {
  ::setenv("OTEL_SDK_DISABLED", "true", 1);
  {
    WithCollector collector;
    record_one_of_each();
    EXPECT_TRUE(collector.flush());
    EXPECT_TRUE(metric_is_there());
    EXPECT_EQ(collector.receiver.requests(), 0u);
  }
  ::unsetenv("OTEL_SDK_DISABLED");
}

TEST(Switches, OneSignalOffThenTheOthersArrive) {
  for (const int off : {0, 1, 2}) {
    TelemetryConfig config;
    SignalConfig* const signals[] = {&config.traces, &config.logs, &config.metrics};
    signals[off]->enabled = false;
    WithCollector collector(config);
    record_one_of_each();
    EXPECT_TRUE(collector.flush());
    EXPECT_EQ(collector.span("switched").has_value(), off != 0);
    EXPECT_EQ(collector.log("test.switched").has_value(), off != 1);
    EXPECT_EQ(collector.receiver.metric("tuft.futures.created").has_value(), off != 2);
    EXPECT_TRUE(metric_is_there());
  }
}

TEST(LogLevel, OfTelemetryItselfThenOnlyItsLinesAreSuppressed) {
  ::setenv("OTEL_LOG_LEVEL", "none", 1);
  {
    WithCollector collector;
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(init_telemetry({.enabled = true}).ok());  // warns
    log_info("test.switched", "a line");
    flush_logging();
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(lines.find("telemetry."), std::string::npos) << lines;
    EXPECT_NE(lines.find("test.switched"), std::string::npos);
  }
  ::unsetenv("OTEL_LOG_LEVEL");
}

TEST(LogLevel, OfTelemetryItselfDebugThenALineForEachExportAndNoRecordOfIt) {
  ::setenv("OTEL_LOG_LEVEL", "debug", 1);
  {
    WithCollector collector;
    ::testing::internal::CaptureStderr();
    log_info("test.switched", "a line");
    EXPECT_TRUE(collector.flush());
    flush_logging();
    const std::string lines = ::testing::internal::GetCapturedStderr();
    // As text or as JSON: another test of the program may have set the format.
    for (const char* said : {"telemetry.export", "signal", "logs", "records", "bytes", "seconds", "delivered"}) {
      EXPECT_NE(lines.find(said), std::string::npos) << said << " is not in\n" << lines;
    }
    EXPECT_TRUE(collector.flush());
    EXPECT_FALSE(collector.log("telemetry.export")) << "its export would cause the next";
  }
  ::unsetenv("OTEL_LOG_LEVEL");
}

TEST(LogFlood, OneEventThenItIsCutAndCountedAndOthersAreNot) {
  WithCollector collector;
  ::testing::internal::CaptureStderr();
  constexpr int kRecords = 5000;
  for (int i = 0; i < kRecords; ++i) log_info("test.flood", "again");
  log_info("test.quiet", "still heard");
  flush_logging();
  ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(collector.flush());
  size_t arrived = 0;
  for (const auto& log : collector.receiver.logs()) arrived += log.event_name == "test.flood" ? 1 : 0;
  EXPECT_GE(arrived, 1000u);
  EXPECT_LT(arrived, 2000u);
  EXPECT_TRUE(collector.log("test.quiet"));
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("tuft.telemetry.log_suppressed", {{"event", "test.flood"}}),
            static_cast<double>(kRecords - arrived));
}

TEST(LogLimit, FloodThenABurstThenARateAndTheSuppressedAreReported) {
  internal::LogLimit limit;
  const char* const event = "event";
  Nanos now = kSecond;
  int passed = 0;
  for (int i = 0; i < 3000; ++i) passed += limit.ask(event, now).pass ? 1 : 0;
  EXPECT_EQ(passed, 1000);
  EXPECT_TRUE(limit.ask("another", now).pass);
  now += kSecond;
  uint64_t said = 0;
  passed = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto verdict = limit.ask(event, now);
    passed += verdict.pass ? 1 : 0;
    said += verdict.suppressed;
  }
  EXPECT_EQ(passed, 100);
  EXPECT_EQ(said, 2000u);
  now += 60 * kSecond;
  EXPECT_EQ(limit.ask(event, now).suppressed, 900u);
  EXPECT_EQ(limit.ask(event, now).suppressed, 0u);
}

TEST(LogLimit, MoreNamesThanItKnowsThenTheRestIsNotLimited) {
  auto limit = std::make_unique<internal::LogLimit>();
  const std::string names(2000, 'x');
  for (const char& name : names) EXPECT_TRUE(limit->ask(&name, kSecond).pass);
  for (int i = 0; i < 3000; ++i) EXPECT_TRUE(limit->ask(&names.back(), kSecond).pass);
}

}  // namespace
}  // namespace tuft::telemetry
