#include "control/observe/intake.h"

#include <gtest/gtest.h>

#include "control/tests/recording_store.h"
#include "telemetry/otlp/response.h"
#include "telemetry/otlp/wire.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::control {
namespace {

using telemetry::internal::otlp::read_partial_success;
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
      writer.bytes(1, "a trace's number");
      writer.bytes(2, "a span's");
      writer.text(5, std::string(name_bytes, 'x'));
      writer.close(span);
    }
  });
}

// A metric with `points` in its data, which is in `field`.
void write_metric(WireWriter& writer, uint32_t field, int points) {
  const size_t metric = writer.open(2);
  writer.text(1, "m");
  const size_t data = writer.open(field);
  for (int i = 0; i < points; ++i) {
    const size_t point = writer.open(1);
    writer.fixed64(3, 1);
    writer.fixed64(4, 0);
    writer.close(point);
  }
  writer.close(data);
  writer.close(metric);
}

class IntakeTest : public ::testing::Test {
 protected:
  Error refusal(const UserId& user, IntakeSignal signal, std::string request) {
    Result<std::string> answer = intake_.take(user, signal, std::move(request));
    return answer.ok() ? internal_error("it was taken") : std::move(answer).error();
  }
  Result<std::string> send(const UserId& user, std::string request) {
    return intake_.take(user, IntakeSignal::kTraces, std::move(request));
  }
  bool may_send(const UserId& user) { return intake_.may_send(user, IntakeSignal::kLogs).ok(); }

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

TEST_F(IntakeTest, MoreRecordsThanMayComeAtOnceThenRefusedForGoodAndHardlyCharged) {
  const std::string many = spans(20'001);
  for (int i = 0; i < 40; ++i) {
    const Error refused = refusal(alice, IntakeSignal::kTraces, many);
    EXPECT_EQ(refused.code, ErrorCode::kPayloadTooLarge) << "no sender repeats it";
    ASSERT_EQ(refused.reason, "too_many_records");
    EXPECT_NE(refused.message.find("at most 20000"), std::string::npos) << refused.message;
    clock_.advance(kSecond);
  }
  EXPECT_TRUE(store_.added().empty());
  EXPECT_TRUE(send(alice, spans(20'000)).ok());
}

// What is kept is 51 MB of a share of 64 MiB, what is refused 88 MB.
TEST_F(IntakeTest, RefusedForTheRateThenNoPartOfTheShareIsTaken) {
  const std::string large = spans(20'000, 100);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(send(alice, spans(10'000)).ok()) << i;
    ASSERT_EQ(refusal(alice, IntakeSignal::kTraces, large).reason, "intake_rate") << i;
    clock_.advance(3 * kSecond);
  }
  clock_.advance(3 * kSecond);
  EXPECT_TRUE(send(alice, large).ok());
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

TEST_F(IntakeTest, AllIsKeptThenTheAnswerIsAnEmptyMessage) {
  EXPECT_EQ(send(alice, spans(2)).value(), "");
  EXPECT_EQ(send(alice, "").value(), "");
}

TEST_F(IntakeTest, SomeIsNotKeptThenTheAnswerSaysHowMuchAndWhy) {
  const telemetry::testing::RecordedMetrics recorded;
  const std::string without_ids = request_of([](WireWriter& writer) {
    writer.close(writer.open(2));
    writer.close(writer.open(2));
  });
  const auto of_spans = read_partial_success(send(alice, spans(1) + without_ids).value());
  EXPECT_EQ(of_spans.rejected, 2);
  EXPECT_NE(of_spans.message.find("2 without a trace_id or a span_id"), std::string::npos) << of_spans.message;

  const auto of_logs =
      read_partial_success(intake_.take(alice, IntakeSignal::kLogs, spans(1, 1 << 20) + spans(3)).value());
  EXPECT_EQ(of_logs.rejected, 1);
  EXPECT_NE(of_logs.message.find("larger than 1048576 bytes"), std::string::npos) << of_logs.message;

  const std::string summary = request_of([](WireWriter& writer) { write_metric(writer, 11, 3); });
  const auto of_points = read_partial_success(intake_.take(alice, IntakeSignal::kMetrics, summary).value());
  EXPECT_EQ(of_points.rejected, 3);
  EXPECT_NE(of_points.message.find("no gauge, sum, histogram"), std::string::npos) << of_points.message;

  for (const char* signal : {"traces", "logs", "metrics"}) {
    EXPECT_EQ(recorded.counter("tuft.intake.requests", {{"signal", signal}, {"status", "partial"}}), 1) << signal;
  }
}

TEST_F(IntakeTest, PointsFoundNoPlaceThenTheNextAnswerOfMetricsWarnsOnce) {
  const telemetry::testing::RecordedMetrics recorded;
  const auto send_metric = [&](const UserId& user, uint32_t field) {
    const std::string request = request_of([&](WireWriter& writer) { write_metric(writer, field, 3); });
    return read_partial_success(intake_.take(user, IntakeSignal::kMetrics, request).value());
  };
  constexpr uint32_t kSum = 7, kSummary = 11;
  store_.refuse_points("alice", {.records = 12, .reason = "12 of new series"});
  EXPECT_EQ(send(alice, spans(1)).value(), "");
  EXPECT_EQ(send_metric(bob, kSum).message, "");

  const auto warned = send_metric(alice, kSum);
  EXPECT_EQ(warned.rejected, 0);
  EXPECT_EQ(warned.message, "not kept of earlier requests: 12 of new series");
  EXPECT_EQ(recorded.counter("tuft.intake.requests", {{"signal", "metrics"}, {"status", "ok"}}), 2);
  EXPECT_EQ(send_metric(alice, kSum).message, "");

  store_.refuse_points("alice", {.records = 1, .reason = "1 of new series"});
  const auto both = send_metric(alice, kSummary);
  EXPECT_EQ(both.rejected, 3) << "of this request";
  EXPECT_NE(both.message.find("; not kept of earlier requests: 1 of new series"), std::string::npos) << both.message;
}

TEST_F(IntakeTest, QueueIsFullThenRefusedAndTheRateIsGivenBack) {
  const telemetry::testing::RecordedMetrics recorded;
  const std::string large = spans(3, 900'000);
  store_.has_room = false;
  for (int i = 0; i < 10; ++i) {
    const Error refused = refusal(alice, IntakeSignal::kTraces, large);
    EXPECT_EQ(refused.code, ErrorCode::kResourceExhausted);
    ASSERT_EQ(refused.reason, "intake_queue_full");
    ASSERT_EQ(refusal(alice, IntakeSignal::kMetrics, "").reason, "intake_queue_full");
  }
  EXPECT_EQ(recorded.counter("tuft.intake.requests", {{"signal", "traces"}, {"status", "intake_queue_full"}}), 10);
  EXPECT_EQ(recorded.counter("tuft.intake.requests", {{"signal", "traces"}, {"status", "ok"}}), 0);
  store_.has_room = true;
  EXPECT_TRUE(send(alice, large).ok()) << "27 MB of the 8 MiB that may come at once were refused";
  // They are not for nothing: they were read.
  store_.has_room = false;
  int refusals = 0;
  while (refusal(bob, IntakeSignal::kTraces, large).reason == "intake_queue_full" && refusals < 100) ++refusals;
  EXPECT_LT(refusals, 20);
}

TEST_F(IntakeTest, ShortQueueThenTheLimitOfARequestIsThatOfTheQueue) {
  store_.bytes_max = 100'000;
  EXPECT_EQ(intake_.body_bytes_max(), 100'000);
  EXPECT_TRUE(send(alice, spans(1, 99'000)).ok());
  const Error refused = refusal(alice, IntakeSignal::kTraces, spans(1, 100'000));
  EXPECT_EQ(refused.code, ErrorCode::kPayloadTooLarge);
  EXPECT_NE(refused.message.find("100000"), std::string::npos) << refused.message;
  store_.bytes_max = int64_t{1} << 30;
  EXPECT_EQ(intake_.body_bytes_max(), kIntakeBytesMax);
}

// A body of a few KB may become 4 MiB before its size is known.
TEST_F(IntakeTest, WhatIsRefusedWasReadThenItCosts) {
  const std::string large = spans(4, 1'000'000);
  ASSERT_TRUE(send(alice, large).ok());
  ASSERT_TRUE(send(alice, large).ok());
  int read = 0;
  for (; may_send(alice) && read < 100; ++read)
    ASSERT_EQ(refusal(alice, IntakeSignal::kTraces, large).reason, "intake_rate");
  EXPECT_LE(read, 2) << "then they are refused before they are read";
  EXPECT_TRUE(may_send(bob));
  // Who tries again each second gets on.
  int seconds = 0;
  do clock_.advance(kSecond);
  while (!send(alice, large).ok() && ++seconds < 60);
  EXPECT_LE(seconds, 10);
}

TEST_F(IntakeTest, EmptyRequestsThenEachCostsAKibibyte) {
  int taken = 0;
  while (may_send(alice) && send(alice, "").ok() && taken < 100'000) ++taken;
  EXPECT_EQ(taken, 8 * 1024);
  EXPECT_EQ(refusal(alice, IntakeSignal::kTraces, "").reason, "intake_rate");
  EXPECT_TRUE(may_send(bob));
  clock_.advance(kSecond);
  EXPECT_TRUE(may_send(alice));
}

TEST_F(IntakeTest, NothingIsKeptThenUnavailable) {
  Intake none(nullptr, 1 << 30, 3600 * kSecond, clock_);
  EXPECT_EQ(none.take(alice, IntakeSignal::kTraces, spans(1)).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace tuft::control
