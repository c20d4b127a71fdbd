#include "control/observe/intake.h"

#include <gtest/gtest.h>

#include "control/tests/recording_store.h"
#include "telemetry/otlp/wire.h"

namespace tuft::control {
namespace {

using telemetry::internal::otlp::WireWriter;

// A request whose only scope has what `fill` writes, in field 2 for each record.
template <typename Fill>
std::string request_of(Fill&& fill) {
  WireWriter writer;
  const size_t resource = writer.open(1);
  const size_t scope = writer.open(2);
  fill(writer);
  writer.close(scope);
  writer.close(resource);
  return std::string(writer.view());
}

// Spans or log records, which have a text in field 5.
std::string spans(int count, size_t name_bytes = 5) {
  return request_of([&](WireWriter& writer) {
    for (int i = 0; i < count; ++i) {
      const size_t span = writer.open(2);
      writer.text(5, std::string(name_bytes, 'x'));
      writer.close(span);
    }
  });
}

// A metric with `points` in its data, which is in `field`.
void write_metric(WireWriter& writer, uint32_t field, int points) {
  const size_t metric = writer.open(2);
  const size_t data = writer.open(field);
  for (int i = 0; i < points; ++i) {
    const size_t point = writer.open(1);
    writer.fixed64(3, 1);
    writer.close(point);
  }
  writer.close(data);
  writer.close(metric);
}

class IntakeTest : public ::testing::Test {
 protected:
  Error refusal(const UserId& user, IntakeSignal signal, std::string request) {
    Status status = intake_.take(user, signal, std::move(request));
    return status.ok() ? internal_error("it was taken") : std::move(status).error();
  }
  Status send(const UserId& user, std::string request) {
    return intake_.take(user, IntakeSignal::kTraces, std::move(request));
  }

  const UserId alice{"alice"}, bob{"bob"};
  RecordingStore store_;
  FakeClock clock_;
  Intake intake_{&store_, int64_t{512} << 20, 1000 * kSecond, clock_};
};

TEST_F(IntakeTest, RequestsOfThreeSignalsThenEachBelongsToItsSender) {
  const std::string metrics = request_of([](WireWriter& writer) { write_metric(writer, 7, 1); });
  ASSERT_TRUE(send(alice, spans(2)).ok());
  ASSERT_TRUE(intake_.take(bob, IntakeSignal::kLogs, spans(1)).ok());
  ASSERT_TRUE(intake_.take(bob, IntakeSignal::kMetrics, metrics).ok());
  const auto added = store_.added();
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added[0].owner, "alice");
  EXPECT_EQ(added[0].request, spans(2));
  EXPECT_EQ(added[1].owner, "bob");
  EXPECT_EQ(added[1].type, telemetry_store::RecordType::kLogs);
  EXPECT_EQ(store_.metrics().size(), 1u);
}

TEST_F(IntakeTest, RequestsThenTheirRecordsAreCounted) {
  EXPECT_EQ(count_records(IntakeSignal::kTraces, spans(7)), 7);
  EXPECT_EQ(count_records(IntakeSignal::kTraces, ""), 0);
  const std::string metrics = request_of([](WireWriter& writer) {
    write_metric(writer, 5, 1);   // a gauge
    write_metric(writer, 9, 2);   // a histogram
    write_metric(writer, 12, 4);  // nothing that is known
  });
  EXPECT_EQ(count_records(IntakeSignal::kMetrics, metrics), 3);
}

TEST_F(IntakeTest, NoSuchMessageThenRefusedAndCharged) {
  const std::string torn = spans(3).substr(0, 20);
  EXPECT_EQ(refusal(alice, IntakeSignal::kTraces, torn).reason, "invalid_otlp");
  EXPECT_EQ(refusal(alice, IntakeSignal::kTraces, "{\"resourceSpans\": []}").reason, "invalid_otlp");
  EXPECT_EQ(refusal(alice, IntakeSignal::kTraces, std::string((4 << 20) + 1, 'x')).code, ErrorCode::kPayloadTooLarge);
  EXPECT_TRUE(store_.added().empty());
  const std::string garbage(1 << 20, '\xff');
  for (int i = 0; i < 7; ++i) EXPECT_EQ(refusal(alice, IntakeSignal::kTraces, garbage).reason, "invalid_otlp");
  EXPECT_EQ(refusal(alice, IntakeSignal::kTraces, garbage).reason, "intake_rate");
}

TEST_F(IntakeTest, ManyRecordsThenOneUserWaitsAndAnotherDoesNot) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(send(alice, spans(2000)).ok());
  const Error refused = refusal(alice, IntakeSignal::kTraces, spans(2000));
  EXPECT_EQ(refused.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.reason, "intake_rate");
  EXPECT_TRUE(send(bob, spans(2000)).ok());
  clock_.advance(kSecond);
  EXPECT_TRUE(send(alice, spans(2000)).ok());
}

TEST_F(IntakeTest, AShareOfTheDiskIsSentThenTheRestWaitsForItsAge) {
  const std::string large = spans(1, 3 << 20);
  int taken = 0;
  for (; taken < 1000 && send(alice, large).ok(); ++taken) clock_.advance(4 * kSecond);
  // 64 MiB at once, and in the 4 s for each request 0.26 MiB more.
  EXPECT_GE(taken, 21);
  EXPECT_LE(taken, 24);
  const Error refused = refusal(alice, IntakeSignal::kTraces, large);
  EXPECT_EQ(refused.reason, "intake_share");
  EXPECT_NE(refused.message.find("telemetry.store.disk_bytes_max"), std::string::npos);
  EXPECT_TRUE(send(bob, large).ok());
  clock_.advance(1000 * kSecond);
  EXPECT_TRUE(send(alice, large).ok());
}

TEST_F(IntakeTest, NothingIsKeptThenUnavailable) {
  Intake none(nullptr, 1 << 30, 3600 * kSecond, clock_);
  EXPECT_EQ(none.take(alice, IntakeSignal::kTraces, spans(1)).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace tuft::control
