// What a sender is told about must be what the store leaves out.
#include "telemetry_store/rejections.h"

#include <limits>

#include "telemetry/otlp/wire.h"
#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

using telemetry::internal::otlp::WireWriter;

class Rejected : public StoreTest {
 protected:
  // Returns how many records of the request the store leaves out when it gets it.
  uint64_t dropped_of(RecordType type, const std::string& request) {
    const uint64_t before = store_->state().dropped_records;
    EXPECT_TRUE(store_->add(type, request, {.owner = "alice"}));
    EXPECT_TRUE(store_->settle(20 * kSecond));
    return store_->state().dropped_records - before;
  }
  uint64_t dropped_of_metrics(const std::string& request) {
    const uint64_t before = store_->state().dropped_records;
    EXPECT_TRUE(store_->add_metrics(request, {.owner = "alice"}));
    EXPECT_TRUE(store_->settle(20 * kSecond));
    return store_->state().dropped_records - before;
  }
};

TEST_F(Rejected, SpansThatAreKeptThenNone) {
  const Rejections none = rejected_spans(build_spans({{}, {.span = 2}}));
  EXPECT_EQ(none.records, 0);
  EXPECT_EQ(none.reason, "");
  EXPECT_EQ(rejected_spans("").records, 0);
}

TEST_F(Rejected, SpansWithoutIdsOrTooLargeThenCountedByReason) {
  const std::string request = build_spans({{.span = 0},
                                           {.span = 1},
                                           {.trace = 2, .span = 0},
                                           {.span = 3, .attributes = {{"large", std::string(1 << 20, 'x')}}}});
  const Rejections found = rejected_spans(request);
  EXPECT_EQ(found.records, 3);
  EXPECT_EQ(found.reason, "1 larger than 1048576 bytes, 2 without a trace_id or a span_id");
  EXPECT_EQ(dropped_of(RecordType::kSpans, request), 3u);
  EXPECT_EQ(store_->state().spans, 1u);
}

TEST_F(Rejected, LogRecordTooLargeThenCounted) {
  const std::string request =
      build_logs({{.time = now(), .body = std::string(1'250'000, 'z')}, {.time = now(), .body = "short"}});
  const Rejections found = rejected_logs(request);
  EXPECT_EQ(found.records, 1);
  EXPECT_EQ(found.reason, "1 larger than 1048576 bytes");
  EXPECT_EQ(dropped_of(RecordType::kLogs, request), 1u);
  EXPECT_EQ(store_->state().logs, 1u);
}

// A metric whose data, in `field`, has two points with the number 7.
std::string metric_of(const std::string& name, uint32_t field, double value) {
  WireWriter writer;
  const size_t resource = writer.open(1);
  const size_t scope = writer.open(2);
  const size_t metric = writer.open(2);
  writer.text(1, name);
  const size_t data = writer.open(field);
  for (int i = 0; i < 2; ++i) {
    const size_t point = writer.open(1);
    writer.fixed64(3, 1);
    writer.number(4, value);
    writer.close(point);
  }
  writer.close(data);
  writer.close(metric);
  writer.close(scope);
  writer.close(resource);
  return std::string(writer.view());
}

TEST_F(Rejected, PointsOfASummaryWithoutNameOrValueThenCountedByReason) {
  constexpr uint32_t kGauge = 5;
  constexpr uint32_t kSummary = 11;
  EXPECT_EQ(rejected_points(metric_of("m", kGauge, 7)).records, 0);
  const std::string request = metric_of("my.summary", kSummary, 7) + metric_of("", kGauge, 7) +
                              metric_of("m", kGauge, std::numeric_limits<double>::infinity()) +
                              metric_of("m", kGauge, 7);
  const Rejections found = rejected_points(request);
  EXPECT_EQ(found.records, 6);
  EXPECT_NE(found.reason.find("2 of a metric that is no gauge"), std::string::npos) << found.reason;
  EXPECT_NE(found.reason.find("2 without a metric name"), std::string::npos) << found.reason;
  EXPECT_NE(found.reason.find("2 without a finite value"), std::string::npos) << found.reason;
  EXPECT_EQ(dropped_of_metrics(request), 6u);
}

TEST_F(Rejected, PointsOfAllKindsThatAreKeptThenNone) {
  using Kind = BuiltMetric::Kind;
  const std::string request = build_metrics(
      {{.name = "a", .kind = Kind::kCounter, .value = 1, .labels = {{"k", "v"}}},
       {.name = "b", .kind = Kind::kHistogram, .value = 1, .bounds = {1, 2}, .counts = {1, 2, 3}, .exemplar_trace = 3},
       {.name = "c", .kind = Kind::kExponential, .counts = {1, 2, 300}}});
  EXPECT_EQ(rejected_points(request).records, 0);
  EXPECT_EQ(dropped_of_metrics(request), 0u);
}

}  // namespace
}  // namespace tuft::telemetry_store
