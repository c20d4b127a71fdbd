// Tests the file exporter and the console exporter.
#include <array>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <opentelemetry/proto/collector/logs/v1/logs_service.pb.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "telemetry/otlp/console_lines.h"
#include "telemetry/otlp/exporter.h"
#include "telemetry/otlp/json.h"

namespace tuft::telemetry::internal::otlp {
namespace {

using nlohmann::json;
namespace collector = opentelemetry::proto::collector;
namespace proto = opentelemetry::proto;

void add_text(google::protobuf::RepeatedPtrField<proto::common::v1::KeyValue>& attributes, const char* key,
              const std::string& value) {
  auto* attribute = attributes.Add();
  attribute->set_key(key);
  attribute->mutable_value()->set_string_value(value);
}

collector::trace::v1::ExportTraceServiceRequest spans() {
  collector::trace::v1::ExportTraceServiceRequest request;
  auto& scope = *request.add_resource_spans()->add_scope_spans();
  scope.mutable_scope()->set_name("tuft.store");
  auto& span = *scope.add_spans();
  span.set_trace_id(std::string("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\xff", 16));
  span.set_span_id(std::string("\x00\x11\x22\x33\x44\x55\x66\x77", 8));
  span.set_parent_span_id(std::string(8, '\x77'));
  span.set_name("store.get");
  span.set_kind(proto::trace::v1::Span::SPAN_KIND_CLIENT);
  span.set_start_time_unix_nano(1767323045678901234);
  span.set_end_time_unix_nano(1767323045678901234 + 1'204'000);
  add_text(*span.mutable_attributes(), "key", "a \"b\"\n");
  auto* count = span.add_attributes();
  count->set_key("count");
  count->mutable_value()->set_int_value(9'007'199'254'740'993);
  auto& event = *span.add_events();
  event.set_name("exception");
  event.set_time_unix_nano(1);
  add_text(*event.mutable_attributes(), "type", "not_found");
  span.mutable_status()->set_code(proto::trace::v1::Status::STATUS_CODE_ERROR);
  span.mutable_status()->set_message("gone");
  return request;
}

collector::logs::v1::ExportLogsServiceRequest logs() {
  collector::logs::v1::ExportLogsServiceRequest request;
  auto& log = *request.add_resource_logs()->add_scope_logs()->add_log_records();
  log.set_time_unix_nano(1767323045000000000);
  log.set_severity_number(proto::logs::v1::SEVERITY_NUMBER_WARN);
  log.set_severity_text("WARN");
  log.set_event_name("session.created");
  log.mutable_body()->set_string_value("session created");
  add_text(*log.mutable_attributes(), "event.name", "session.created");
  add_text(*log.mutable_attributes(), "code.file.path", "a.cc");
  add_text(*log.mutable_attributes(), "tuft.session_id", "s-1");
  return request;
}

collector::metrics::v1::ExportMetricsServiceRequest metrics() {
  collector::metrics::v1::ExportMetricsServiceRequest request;
  auto& scope = *request.add_resource_metrics()->add_scope_metrics();
  auto& counter = *scope.add_metrics();
  counter.set_name("tuft.futures.created");
  counter.set_unit("{future}");
  counter.mutable_sum()->set_is_monotonic(true);
  counter.mutable_sum()->set_aggregation_temporality(proto::metrics::v1::AGGREGATION_TEMPORALITY_CUMULATIVE);
  auto& point = *counter.mutable_sum()->add_data_points();
  point.set_as_int(3);
  point.set_time_unix_nano(1767323045000000000);
  add_text(*point.mutable_attributes(), "operation_type", "sample");
  auto& histogram = *scope.add_metrics();
  histogram.set_name("wait");
  auto& buckets = *histogram.mutable_histogram()->add_data_points();
  buckets.set_time_unix_nano(1767323045000000000);
  buckets.set_count(2);
  buckets.set_sum(0.75);
  buckets.set_min(0.25);
  buckets.set_max(0.5);
  buckets.add_bucket_counts(2);
  buckets.add_explicit_bounds(1);
  buckets.add_exemplars()->set_trace_id(std::string("\x01\x02"));
  auto& exponential = *scope.add_metrics();
  exponential.set_name("work");
  auto& work = *exponential.mutable_exponential_histogram()->add_data_points();
  work.set_time_unix_nano(1767323045000000000);
  work.set_count(1);
  work.set_sum(4);
  work.set_scale(-1);
  return request;
}

TEST(ConsoleLines, EachSignalThenOneLineARecord) {
  EXPECT_EQ(console_lines(spans()),
            "SPAN   2026-01-02T03:04:05.678901Z 1.204ms store.get trace=0102030405060708090a0b0c0d0e0fff "
            "span=0011223344556677 parent=7777777777777777 scope=tuft.store ERROR=\"gone\" key=\"a \\\"b\\\"\\x0a\" "
            "count=9007199254740993 event=exception(type=not_found)\n");
  EXPECT_EQ(console_lines(logs()),
            "LOG    2026-01-02T03:04:05.000000Z WARN session.created \"session created\" tuft.session_id=s-1\n");
  EXPECT_EQ(console_lines(metrics()),
            "METRIC 2026-01-02T03:04:05.000000Z tuft.futures.created{operation_type=\"sample\"} 3 {future}\n"
            "METRIC 2026-01-02T03:04:05.000000Z wait count=2 sum=0.75 min=0.25 max=0.5\n"
            "METRIC 2026-01-02T03:04:05.000000Z work count=1 sum=4\n");
}

TEST(Json, ASpanThenAsOtlpMapsIt) {
  std::string text;
  append_json(text, spans());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const json span = json::parse(text)["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(span["traceId"], "0102030405060708090a0b0c0d0e0fff");
  EXPECT_EQ(span["spanId"], "0011223344556677");
  EXPECT_EQ(span["parentSpanId"], "7777777777777777");
  EXPECT_EQ(span["kind"], 3);
  EXPECT_EQ(span["startTimeUnixNano"], "1767323045678901234");
  EXPECT_EQ(span["attributes"][0]["value"]["stringValue"], "a \"b\"\n");
  EXPECT_EQ(span["attributes"][1]["value"]["intValue"], "9007199254740993");
  EXPECT_EQ(span["status"]["code"], 2);
}

TEST(Json, MetricsThenAsOtlpMapsThem) {
  std::string text;
  append_json(text, metrics());
  const json all = json::parse(text)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
  EXPECT_EQ(all[0]["sum"]["aggregationTemporality"], 2);
  EXPECT_EQ(all[0]["sum"]["isMonotonic"], true);
  EXPECT_EQ(all[0]["sum"]["dataPoints"][0]["asInt"], "3");
  EXPECT_EQ(all[1]["histogram"]["dataPoints"][0]["count"], "2");
  EXPECT_EQ(all[1]["histogram"]["dataPoints"][0]["bucketCounts"][0], "2");
  EXPECT_EQ(all[1]["histogram"]["dataPoints"][0]["exemplars"][0]["traceId"], "0102") << "hexadecimal, as ids of spans";
  EXPECT_EQ(all[2]["exponentialHistogram"]["dataPoints"][0]["scale"], -1);
  EXPECT_EQ(all[1]["histogram"]["dataPoints"][0]["explicitBounds"][0], 1.0);
}

class TemporaryFile {
 public:
  TemporaryFile() : path_(std::filesystem::temp_directory_path() / ("tuft-otlp-" + std::to_string(::getpid()))) {
    std::filesystem::remove(path_);
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(FileExporter, ThreeSignalsIntoOneFileThenEveryLineIsARequest) {
  const TemporaryFile file;
  const SignalSettings settings{.protocol = Protocol::kFile, .endpoint = file.path()};
  constexpr int kRounds = 50;
  const std::array<std::pair<Signal, std::string>, 3> requests{{{Signal::kTraces, spans().SerializeAsString()},
                                                                {Signal::kLogs, logs().SerializeAsString()},
                                                                {Signal::kMetrics, metrics().SerializeAsString()}}};
  std::vector<std::thread> writers;
  for (const auto& [signal, request] : requests) {
    writers.emplace_back([&settings, signal = signal, &request = request] {
      auto to = make_exporter(signal, settings);
      ASSERT_TRUE(to.ok());
      for (int i = 0; i < kRounds; ++i) EXPECT_EQ(to.value()->send(request).outcome, ExportResult::Outcome::kDelivered);
    });
  }
  for (std::thread& writer : writers) writer.join();
  std::map<std::string, int> lines;
  std::ifstream in(file.path());
  for (std::string line; std::getline(in, line);) ++lines[json::parse(line).begin().key()];
  EXPECT_EQ(lines, (std::map<std::string, int>{
                       {"resourceLogs", kRounds}, {"resourceMetrics", kRounds}, {"resourceSpans", kRounds}}));
}

TEST(FileExporter, PathThatCannotBeWrittenThenAnErrorThatNamesIt) {
  const auto made = make_exporter(Signal::kTraces, {.protocol = Protocol::kFile, .endpoint = "/nowhere/at/all.jsonl"});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("/nowhere/at/all.jsonl"), std::string::npos);
}

TEST(FileExporter, FullDiskThenRetryLater) {
  const auto to = make_exporter(Signal::kTraces, {.protocol = Protocol::kFile, .endpoint = "/dev/full"});
  ASSERT_TRUE(to.ok());
  EXPECT_EQ(to.value()->send(spans().SerializeAsString()).outcome, ExportResult::Outcome::kRetry);
}

}  // namespace
}  // namespace tuft::telemetry::internal::otlp
