// Tests the outbox: what comes in, what stays, and that the export does not change because of it.
#include "telemetry/export/outbox.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <opentelemetry/proto/collector/logs/v1/logs_service.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "telemetry/log.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

namespace collector = opentelemetry::proto::collector;

struct Contents {
  std::vector<std::string> spans;
  std::vector<std::string> events;
  std::string service;
  uint64_t last = 0;
};

// Reads everything and confirms it.
Contents take_all() {
  Contents out;
  for (const OutboxBatch& batch : read_outbox(0, SIZE_MAX)) {
    EXPECT_GT(batch.number, out.last);
    out.last = batch.number;
    size_t count = 0;
    if (batch.logs) {
      collector::logs::v1::ExportLogsServiceRequest request;
      EXPECT_TRUE(request.ParseFromString(*batch.request));
      for (const auto& scope : request.resource_logs(0).scope_logs()) {
        for (const auto& record : scope.log_records()) out.events.push_back(record.event_name());
        count += static_cast<size_t>(scope.log_records_size());
      }
    } else {
      collector::trace::v1::ExportTraceServiceRequest request;
      EXPECT_TRUE(request.ParseFromString(*batch.request));
      for (const auto& attribute : request.resource_spans(0).resource().attributes()) {
        if (attribute.key() == "service.name") out.service = attribute.value().string_value();
      }
      for (const auto& scope : request.resource_spans(0).scope_spans()) {
        for (const auto& span : scope.spans()) out.spans.push_back(span.name());
        count += static_cast<size_t>(scope.spans_size());
      }
    }
    EXPECT_EQ(count, batch.count);
  }
  EXPECT_TRUE(read_outbox(out.last, SIZE_MAX).empty());
  return out;
}

void record_span(Name scope) {
  get_tracer(scope).start_span("outbox.span");
}

TEST(Outbox, NothingExportedThenSpansAndLogRecordsAreThere) {
  take_all();
  ASSERT_TRUE(
      init_telemetry({.enabled = false, .outbox = true, .service_name = "mine", .metrics_endpoint = false}).ok());
  EXPECT_TRUE(telemetry_enabled());
  record_span("tuft.one");
  record_span("tuft.two");
  log_info("test.outbox", "a line");
  EXPECT_TRUE(fill_outbox(10 * kSecond));
  const Contents contents = take_all();
  EXPECT_EQ(contents.spans, (std::vector<std::string>{"outbox.span", "outbox.span"}));
  EXPECT_EQ(contents.events, (std::vector<std::string>{"test.outbox"}));
  EXPECT_EQ(contents.service, "mine");

  record_span("tuft.one");
  shutdown_telemetry();
  EXPECT_FALSE(telemetry_enabled());
  EXPECT_EQ(take_all().spans.size(), 1u) << "the shutdown puts the rest there";
  record_span("tuft.one");
  EXPECT_TRUE(take_all().spans.empty());
}

TEST(Outbox, NobodyAsksThenItComesByItself) {
  take_all();
  ASSERT_TRUE(init_telemetry({.enabled = false, .outbox = true}).ok());
  record_span("tuft.one");
  const Nanos deadline = system_clock().monotonic() + 20 * kSecond;
  while (read_outbox(0, SIZE_MAX).empty() && system_clock().monotonic() < deadline) std::this_thread::yield();
  shutdown_telemetry();
  EXPECT_EQ(take_all().spans.size(), 1u);
}

// The collector's batches are as large as without an outbox, although that gets its records earlier.
TEST(Outbox, ExportedTooThenEachGetsEachRecordOnce) {
  take_all();
  WithCollector collector({.outbox = true, .batch_delay = 300 * kSecond});
  const uint64_t before = collector.receiver.requests();
  record_span("tuft.one");
  Nanos deadline = system_clock().monotonic() + 20 * kSecond;
  while (read_outbox(0, SIZE_MAX).empty() && system_clock().monotonic() < deadline) std::this_thread::yield();
  EXPECT_LT(system_clock().monotonic(), deadline) << "nothing comes by itself";
  EXPECT_EQ(collector.receiver.requests(), before);
  // The log record of the start may be in a batch of its own. This also gives the collector what there is.
  ASSERT_TRUE(fill_outbox(10 * kSecond));
  EXPECT_EQ(take_all().spans.size(), 1u);
  record_span("tuft.two");
  record_span("tuft.one");
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(take_all().spans.size(), 2u);
  EXPECT_EQ(collector.receiver.spans().size(), 3u);
}

TEST(Outbox, SignalsOffThenTheyAreInTheOutboxAllTheSame) {
  take_all();
  TelemetryConfig config{.outbox = true};
  config.traces.enabled = false;
  config.logs.enabled = false;
  WithCollector collector(config);
  record_span("tuft.one");
  log_info("test.outbox", "a line");
  EXPECT_TRUE(collector.flush());
  const Contents contents = take_all();
  EXPECT_EQ(contents.spans.size(), 1u);
  EXPECT_FALSE(contents.events.empty());
  EXPECT_TRUE(collector.receiver.spans().empty());
  EXPECT_TRUE(collector.receiver.logs().empty());
}

TEST(Outbox, SamplingThenItHoldsWhatSamplingKeeps) {
  take_all();
  ASSERT_TRUE(init_telemetry({.enabled = false, .outbox = true, .sampler = "always_off", .keep_errors = true}).ok());
  record_span("tuft.one");
  {
    Span failing = get_tracer("tuft.one").start_span("outbox.failing");
    failing.record_error(internal_error("it failed"));
  }
  shutdown_telemetry();
  EXPECT_EQ(take_all().spans, (std::vector<std::string>{"outbox.failing"}));
}

TEST(Outbox, SdkDisabledThenNothingIsRecorded) {
  take_all();
  ::setenv("OTEL_SDK_DISABLED", "true", 1);
  ASSERT_TRUE(init_telemetry({.enabled = false, .outbox = true}).ok());
  ::unsetenv("OTEL_SDK_DISABLED");
  EXPECT_FALSE(telemetry_enabled());
  record_span("tuft.one");
  EXPECT_FALSE(fill_outbox(kSecond));
  shutdown_telemetry();
  EXPECT_TRUE(take_all().spans.empty());
}

TEST(Outbox, ReadAgainBeforeItIsConfirmedThenTheSameComes) {
  internal::Outbox outbox;
  outbox.put(false, "one", 1);
  outbox.put(true, "two", 1);
  EXPECT_EQ(outbox.read(0, SIZE_MAX).size(), 2u);
  EXPECT_EQ(outbox.read(0, SIZE_MAX).size(), 2u) << "nothing was confirmed";
  const auto rest = outbox.read(1, SIZE_MAX);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].number, 2u);
  EXPECT_TRUE(rest[0].logs);
  EXPECT_EQ(*rest[0].request, "two");
  EXPECT_TRUE(outbox.read(2, SIZE_MAX).empty());
}

TEST(Outbox, ReaderTakesLittleThenAtLeastOneBatch) {
  internal::Outbox outbox;
  for (int i = 0; i < 3; ++i) outbox.put(false, std::string(100, 'x'), 1);
  EXPECT_EQ(outbox.read(0, 0).size(), 1u);
  EXPECT_EQ(outbox.read(0, 250).size(), 2u);
}

TEST(Outbox, NobodyReadsThenTheOldestAreDroppedAndCounted) {
  WithCollector collector;
  internal::Outbox outbox(250);
  for (int i = 0; i < 5; ++i) outbox.put(i % 2 == 1, std::string(100, 'x'), 7);
  const auto left = outbox.read(0, SIZE_MAX);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].number, 4u);
  outbox.put(false, std::string(1000, 'y'), 1);
  EXPECT_EQ(outbox.read(0, SIZE_MAX).size(), 1u) << "the newest stays although it is larger than the limit";
  EXPECT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("tuft.telemetry.dropped", {{"signal", "traces"}, {"reason", "outbox_full"}}), 21);
  EXPECT_EQ(collector.sum("tuft.telemetry.dropped", {{"signal", "logs"}, {"reason", "outbox_full"}}), 14);
}

}  // namespace
}  // namespace tuft::telemetry
