// Checks that a dead, slow or faulty collector causes counted drops and no other damage.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "telemetry/log.h"
#include "telemetry/testing/http_receiver.h"
#include "telemetry/testing/program_metrics.h"
#include "telemetry/testing/recorded_metrics.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

using testing::text_of;

Nanos now() {
  return system_clock().monotonic();
}

// Returns the time per span while `count` of them are recorded.
Nanos record_spans(int count) {
  const Tracer tracer = get_tracer("tuft.test");
  const Nanos start = now();
  for (int i = 0; i < count; ++i) Span span = tracer.start_span("work", {.attributes = {{"i", i}}});
  return (now() - start) / count;
}

TEST(LifeCycle, CollectorAbsentThenRecordingAndShutdownAreQuick) {
  TelemetryConfig config{.enabled = true, .otlp_endpoint = "http://127.0.0.1:1"};
  ASSERT_TRUE(init_telemetry(config).ok());
  EXPECT_LT(record_spans(20'000), 100 * kMicrosecond);
  EXPECT_FALSE(flush_telemetry(10 * kSecond));
  const Nanos start = now();
  shutdown_telemetry(5 * kSecond);
  EXPECT_LT(now() - start, 5 * kSecond + kSecond);
}

TEST(LifeCycle, CollectorHangsThenShutdownKeepsItsBudget) {
  testing::OtlpReceiver receiver(testing::OtlpReceiver::Mode::kHang);
  ASSERT_TRUE(init_telemetry({.enabled = true, .otlp_endpoint = receiver.endpoint()}).ok());
  EXPECT_LT(record_spans(20'000), 100 * kMicrosecond);
  testing::program_metrics().created.add(1, {{"operation_type", "sample"}});
  log_info("test.hanging", "the collector hangs");
  const Nanos start = now();
  EXPECT_FALSE(flush_telemetry(kSecond / 2));
  EXPECT_LT(now() - start, 2 * kSecond);
  EXPECT_LT(record_spans(20'000), 100 * kMicrosecond);
  const Nanos shutdown_start = now();
  shutdown_telemetry(kSecond);
  EXPECT_LT(now() - shutdown_start, 2 * kSecond);
  EXPECT_FALSE(telemetry_enabled());
}

// Returns the names of this process' threads.
std::multiset<std::string> thread_names() {
  std::multiset<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    names.insert(name);
  }
  return names;
}

TEST(LifeCycle, CollectorHangsThenNoThreadIsLeftAfterTheShutdown) {
  testing::OtlpReceiver receiver(testing::OtlpReceiver::Mode::kHang);
  ASSERT_TRUE(init_telemetry({.enabled = true, .otlp_endpoint = receiver.endpoint()}).ok());
  record_spans(2000);
  EXPECT_EQ(thread_names().count("otlp-traces"), 1u);
  EXPECT_TRUE(receiver.wait_until([&] { return receiver.requests() > 0; }));
  const Nanos start = now();
  shutdown_telemetry(kSecond);
  EXPECT_LT(now() - start, 2 * kSecond);
  for (const char* name : {"otlp-traces", "otlp-logs", "otlp-metrics", "telemetry"})
    EXPECT_EQ(thread_names().count(name), 0u) << name;
}

TEST(LifeCycle, CollectorRejectsAPartThenCountedAndNotSentAgain) {
  WithCollector collector;
  EXPECT_TRUE(collector.flush());
  const double rejected_before = std::max(0.0, collector.sum("tuft.telemetry.rejected", {{"signal", "traces"}}));
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kPartly);
  record_spans(5);
  EXPECT_TRUE(collector.flush());
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kAnswer);
  EXPECT_TRUE(collector.flush());
  EXPECT_EQ(collector.receiver.spans().size(), 5u);
  EXPECT_EQ(collector.sum("tuft.telemetry.rejected", {{"signal", "traces"}}) - rejected_before, 1);
}

TEST(LifeCycle, CollectorAsksToWaitThenDeliveredAfterIt) {
  WithCollector collector;
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kBusy);
  record_spans(5);
  EXPECT_FALSE(collector.flush());
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kAnswer);
  EXPECT_TRUE(collector.receiver.wait_until([&] { return collector.receiver.spans().size() == 5; }));
}

TEST(LifeCycle, RunningThenItsOwnHealthIsAmongTheMetrics) {
  WithCollector collector;
  record_spans(5);
  log_info("test.health", "for the log thread");
  EXPECT_TRUE(collector.flush());
  EXPECT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("otel.sdk.processor.span.queue.capacity"), 32768);
  EXPECT_EQ(collector.sum("otel.sdk.processor.span.queue.size"), 0);
  EXPECT_GT(collector.sum("otel.sdk.exporter.span.exported"), 0);
  EXPECT_GT(collector.sum("otel.sdk.exporter.log.exported"), 0);
  EXPECT_GT(collector.sum("otel.sdk.exporter.metric_data_point.exported"), 0);
  EXPECT_GE(collector.sum("tuft.telemetry.export.last_success.age", {{"signal", "traces"}}), 0);
  EXPECT_LT(collector.sum("tuft.telemetry.export.last_success.age", {{"signal", "traces"}}), 60);
  EXPECT_GE(collector.sum("tuft.telemetry.ring.high_water"), 0);
  EXPECT_GT(collector.sum("tuft.telemetry.thread.cpu"), 0);
  const auto collections = collector.receiver.metric("otel.sdk.metric_reader.collection.duration");
  ASSERT_TRUE(collections);
  EXPECT_GT(collections->points[0].count, 0u);
  const auto exports = collector.receiver.metric("otel.sdk.exporter.operation.duration");
  ASSERT_TRUE(exports && exports->point({{"signal", "traces"}}) != nullptr);
  EXPECT_GT(exports->point({{"signal", "traces"}})->count, 0u);
}

// A server that nobody uses sends no spans, which is no fault of the collector.
TEST(LifeCycle, NothingWaitsThenNoExportIsOverdue) {
  WithCollector collector;
  const testing::RecordedMetrics metrics;
  const auto age = [&](const char* signal) {
    return metrics.gauge("tuft.telemetry.export.last_success.age", {{"signal", signal}}).value_or(-1);
  };
  EXPECT_EQ(age("traces"), 0);
  record_spans(5);
  EXPECT_TRUE(collector.flush());
  EXPECT_EQ(age("traces"), 0);
  EXPECT_EQ(age("metrics"), 0);
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kRefuse);
  record_spans(5);
  EXPECT_FALSE(collector.flush());
  EXPECT_GT(age("traces"), 0);
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kAnswer);
  record_spans(5);
  EXPECT_TRUE(collector.flush());
  EXPECT_EQ(age("traces"), 0);
}

TEST(LifeCycle, OverHttpThenThreeSignalsAtTheirPaths) {
  testing::HttpReceiver receiver;
  ASSERT_TRUE(init_telemetry({.enabled = true,
                              .otlp_endpoint = receiver.endpoint(),
                              .protocol = Protocol::kHttpProtobuf,
                              .compression = Compression::kGzip})
                  .ok());
  record_spans(5);
  log_info("test.http", "over HTTP");
  testing::program_metrics().created.add(1, {{"operation_type", "sample"}});
  EXPECT_TRUE(flush_telemetry(20 * kSecond));
  shutdown_telemetry();
  std::map<std::string, std::string> bodies;
  for (const testing::HttpRequest& request : receiver.requests()) bodies[request.path] += testing::gunzip(request.body);
  EXPECT_NE(bodies["/v1/traces"].find("work"), std::string::npos);
  EXPECT_NE(bodies["/v1/logs"].find("over HTTP"), std::string::npos);
  EXPECT_NE(bodies["/v1/metrics"].find("tuft.futures.created"), std::string::npos);
}

TEST(LifeCycle, SignalsOffThenTheyHaveNoThreadAndSendNothing) {
  testing::OtlpReceiver receiver;
  ASSERT_TRUE(init_telemetry({.enabled = true,
                              .otlp_endpoint = receiver.endpoint(),
                              .traces = {.enabled = false},
                              .metrics = {.enabled = false}})
                  .ok());
  record_spans(5);
  log_info("test.logs_only", "alone");
  EXPECT_EQ(thread_names().count("otlp-traces"), 0u);
  EXPECT_EQ(thread_names().count("otlp-metrics"), 0u);
  EXPECT_TRUE(flush_telemetry(20 * kSecond));
  shutdown_telemetry();
  EXPECT_TRUE(receiver.spans().empty());
  EXPECT_TRUE(receiver.metrics().empty());
  std::set<std::string> events;
  for (const auto& log : receiver.logs()) events.insert(log.event_name);
  EXPECT_EQ(events, (std::set<std::string>{"telemetry.started", "test.logs_only"}));
}

TEST(LifeCycle, StartedThenTheLogNamesTheAddresses) {
  ::testing::internal::CaptureStderr();
  const Status started = init_telemetry({.enabled = true,
                                         .traces = {.endpoint = "http://127.0.0.1:9/v1/traces"},
                                         .metrics = {.enabled = false},
                                         .logs = {.protocol = Protocol::kGrpc, .endpoint = "http://127.0.0.1:9"}});
  ASSERT_TRUE(started.ok()) << started.error().message;
  shutdown_telemetry(0);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("traces: http/protobuf to http://127.0.0.1:9/v1/traces (by the address in"), std::string::npos)
      << lines;
  EXPECT_NE(lines.find("metrics: none, logs: grpc to "), std::string::npos) << lines;
}

// Runs in a process of its own, so that the test includes what exit() does to a thread inside gRPC.
TEST(LifeCycleDeathTest, ExitWhileAnExportHangsThenTheExitCodeIsOurs) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        // Never destroyed; not a leak.
        static auto* receiver = new testing::OtlpReceiver(testing::OtlpReceiver::Mode::kHang);
        if (!init_telemetry({.enabled = true, .otlp_endpoint = receiver->endpoint()}).ok()) std::exit(1);
        record_spans(1000);
        shutdown_telemetry(100 * kMillisecond);
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(LifeCycle, CollectorComesBackThenNothingIsLostAndTheLogSaysSo) {
  WithCollector collector;
  EXPECT_TRUE(collector.flush());
  const double retries_before = std::max(0.0, collector.sum("tuft.telemetry.retries", {{"signal", "traces"}}));
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kAway);
  record_spans(10);
  EXPECT_FALSE(collector.flush());
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kAnswer);
  record_spans(5);
  EXPECT_TRUE(collector.flush());
  EXPECT_TRUE(collector.flush());
  EXPECT_EQ(collector.receiver.spans().size(), 15u);
  EXPECT_TRUE(collector.log("telemetry.recovered"));
  EXPECT_GT(collector.sum("tuft.telemetry.retries", {{"signal", "traces"}}), retries_before);
  EXPECT_GE(collector.sum("tuft.telemetry.exported", {{"signal", "traces"}, {"outcome", "ok"}}), 15);
}

TEST(LifeCycle, CollectorRefusesForGoodThenCountedAndNotSentAgain) {
  WithCollector collector;
  EXPECT_TRUE(collector.flush());
  const std::map<std::string, std::string> failed{{"signal", "traces"}, {"outcome", "failed"}};
  const std::map<std::string, std::string> dropped{{"signal", "traces"}, {"reason", "refused"}};
  const double failed_before = std::max(0.0, collector.sum("tuft.telemetry.exported", failed));
  const double dropped_before = std::max(0.0, collector.sum("tuft.telemetry.dropped", dropped));
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kRefuse);
  record_spans(10);
  EXPECT_FALSE(collector.flush());
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kAnswer);
  record_spans(5);
  EXPECT_TRUE(collector.flush());
  EXPECT_TRUE(collector.flush());
  EXPECT_EQ(collector.receiver.spans().size(), 5u);
  EXPECT_EQ(collector.sum("tuft.telemetry.exported", failed) - failed_before, 10);
  EXPECT_EQ(collector.sum("tuft.telemetry.dropped", dropped) - dropped_before, 10);
  EXPECT_GE(collector.sum("otel.sdk.exporter.span.exported", {{"error.type", "INVALID_ARGUMENT"}}), 10);
}

TEST(LifeCycle, CollectorRefusesThenOneWarningForAll) {
  WithCollector collector;
  collector.receiver.set_mode(testing::OtlpReceiver::Mode::kRefuse);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) {
    record_spans(3);
    collector.flush();
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  size_t warnings = 0;
  for (size_t at = lines.find("telemetry.export_failed"); at != std::string::npos;
       at = lines.find("telemetry.export_failed", at + 1))
    ++warnings;
  EXPECT_EQ(warnings, 1u) << lines;
}

TEST(LifeCycle, ShutdownThenTheLastMetricIntervalAndAllSpansArrive) {
  testing::OtlpReceiver receiver;
  ASSERT_TRUE(init_telemetry({.enabled = true, .otlp_endpoint = receiver.endpoint()}).ok());
  record_spans(700);
  testing::program_metrics().sampling_requests.add(4, {{"base_model", "last"}});
  shutdown_telemetry(5 * kSecond);
  shutdown_telemetry(5 * kSecond);
  EXPECT_EQ(receiver.spans().size(), 700u);
  const auto metric = receiver.metric("tuft.sampling.requests");
  ASSERT_TRUE(metric);
  ASSERT_NE(metric->point({{"base_model", "last"}}), nullptr);
  EXPECT_EQ(metric->point({{"base_model", "last"}})->value, 4);
}

TEST(LifeCycle, NoFlushThenSpansArriveByThemselves) {
  WithCollector collector;
  record_spans(3);
  EXPECT_TRUE(collector.receiver.wait_until([&] { return collector.receiver.spans().size() == 3; }));
}

TEST(LifeCycle, StartedTwiceThenTheFirstStays) {
  WithCollector collector;
  testing::OtlpReceiver other;
  EXPECT_TRUE(init_telemetry({.enabled = true, .otlp_endpoint = other.endpoint()}).ok());
  record_spans(1);
  EXPECT_TRUE(collector.flush());
  EXPECT_EQ(collector.receiver.spans().size(), 1u);
  EXPECT_EQ(other.requests(), 0u);
}

TEST(LifeCycle, DisabledThenNothingStarts) {
  testing::OtlpReceiver receiver;
  ASSERT_TRUE(init_telemetry({.enabled = false, .otlp_endpoint = receiver.endpoint()}).ok());
  EXPECT_FALSE(telemetry_enabled());
  record_spans(10);
  start_resource_metrics();
  EXPECT_TRUE(flush_telemetry(kSecond));
  shutdown_telemetry();
  EXPECT_EQ(receiver.requests(), 0u);
}

TEST(LifeCycle, ConsoleModeThenThreeSignalsOnStdout) {
  ::setenv("TUFT_OTEL_DEBUG", "1", 1);
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(init_telemetry({.enabled = true, .otlp_endpoint = "not even looked at"}).ok());
  record_spans(1);
  testing::program_metrics().created.add(1, {{"operation_type", "sample"}});
  log_info("test.console", "to the console");
  flush_telemetry(5 * kSecond);
  shutdown_telemetry();
  ::unsetenv("TUFT_OTEL_DEBUG");
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(out.find(" work trace="), std::string::npos) << out;
  EXPECT_NE(out.find("tuft.futures.created"), std::string::npos);
  EXPECT_NE(out.find("to the console"), std::string::npos);
}

TEST(LifeCycle, HeadersInTheEnvironmentThenSent) {
  ::setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue", 1);
  {
    WithCollector collector;
    record_spans(1);
    EXPECT_TRUE(collector.flush());
    EXPECT_EQ(collector.receiver.headers()["x-team"], "blue");
  }
  ::unsetenv("OTEL_EXPORTER_OTLP_HEADERS");
}

TEST(LifeCycle, ResourceInTheEnvironmentThenMergedAndConfigurationWins) {
  ::setenv("OTEL_RESOURCE_ATTRIBUTES", "team=green, region=eu%2Cwest,broken,=x", 1);
  ::setenv("OTEL_SERVICE_NAME", "from-environment", 1);
  {
    WithCollector collector({.resource_attributes = {{"team", "blue"}}});
    record_spans(1);
    EXPECT_TRUE(collector.flush());
    const auto span = collector.span("work");
    ASSERT_TRUE(span);
    EXPECT_EQ(text_of(span->resource, "team"), "blue");
    EXPECT_EQ(text_of(span->resource, "region"), "eu,west");
    EXPECT_EQ(text_of(span->resource, "service.name"), "from-environment");
  }
  {
    WithCollector collector({.service_name = "mine"});
    record_spans(1);
    EXPECT_TRUE(collector.flush());
    EXPECT_EQ(text_of(collector.span("work")->resource, "service.name"), "mine");
  }
  ::unsetenv("OTEL_RESOURCE_ATTRIBUTES");
  ::unsetenv("OTEL_SERVICE_NAME");
}

TEST(LifeCycle, ResourceMetricsThenGaugesOfThisMachine) {
  WithCollector collector;
  start_resource_metrics();
  // The first reading exists: there is a processor time as soon as one tick has passed.
  EXPECT_TRUE(collector.receiver.wait_until([&] {
    collector.flush();
    return collector.receiver.metric("tuft.resource.cpu.utilization_percent").has_value();
  }));
  const double total = collector.sum("tuft.resource.memory.total_bytes");
  const double used = collector.sum("tuft.resource.memory.used_bytes");
  EXPECT_GT(total, 0);
  EXPECT_GT(used, 0);
  EXPECT_LE(used, total);
  EXPECT_GT(collector.sum("tuft.resource.process.memory_used_bytes"), 1e6);
  EXPECT_LE(collector.sum("tuft.resource.cpu.utilization_percent"), 100);
  EXPECT_EQ(collector.receiver.metric("tuft.resource.memory.used_bytes")->scope, "tuft.resources");
}

}  // namespace
}  // namespace tuft::telemetry
