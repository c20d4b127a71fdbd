// Retries, overflow and the end of a lane, with an exporter that does as it is told.
#include "telemetry/lane.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "telemetry/metrics.h"
#include "telemetry/recording.h"

namespace tuft::telemetry::internal {
namespace {

using Outcome = ExportResult::Outcome;

// What the test sees of the exporter; outlives it.
struct Script {
  std::mutex mutex;
  std::condition_variable changed;
  Outcome outcome = Outcome::kDelivered;
  Nanos retry_after = 0;
  bool hang = false;
  bool cancelled = false;
  int attempts = 0;
  std::vector<std::string> delivered;

  void set(Outcome next, Nanos wait = 0) {
    const std::lock_guard lock(mutex);
    outcome = next;
    retry_after = wait;
  }
  void set_hang(bool on) {
    const std::lock_guard lock(mutex);
    hang = on;
    changed.notify_all();
  }
  bool wait_until(const std::function<bool()>& done) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), done);
  }
};

class ScriptedExporter final : public Exporter {
 public:
  explicit ScriptedExporter(Script& script) : script_(script) {}
  ExportResult send(std::string_view request) override {
    std::unique_lock lock(script_.mutex);
    ++script_.attempts;
    script_.changed.notify_all();
    script_.changed.wait(lock, [this] { return !script_.hang || script_.cancelled; });
    if (script_.cancelled) return {.outcome = Outcome::kRetry, .error_type = "cancelled", .message = {}};
    if (script_.outcome == Outcome::kDelivered) script_.delivered.emplace_back(request);
    script_.changed.notify_all();
    return {.outcome = script_.outcome,
            .retry_after = script_.retry_after,
            .error_type = script_.outcome == Outcome::kDelivered ? "" : "test",
            .message = {}};
  }
  void cancel() override {
    const std::lock_guard lock(script_.mutex);
    script_.cancelled = true;
    script_.changed.notify_all();
  }

 private:
  Script& script_;
};

class LaneTest : public ::testing::Test {
 protected:
  LaneTest() { g_metrics_recording = true; }
  ~LaneTest() override {
    lane_.cancel();
    lane_.join();
    g_metrics_recording = false;
  }
  bool wait_finished() {
    const uint64_t number = lane_.flush();
    return shared_.progress.wait(system_clock().monotonic() + 20 * kSecond, [&] { return lane_.finished(number); });
  }
  bool wait_ended() {
    return shared_.progress.wait(system_clock().monotonic() + 20 * kSecond, [&] { return lane_.ended(); });
  }
  static int64_t dropped(std::string_view reason) {
    for (const MetricSnapshot& metric : collect_metrics()) {
      if (metric.info.name != "tuft.telemetry.dropped") continue;
      for (const MetricPoint& point : metric.points) {
        if (point.labels == LabelStrings{{"reason", std::string(reason)}, {"signal", "traces"}}) return point.value;
      }
    }
    return 0;
  }

  Script script_;
  LanesShared shared_;
  RecordLane lane_{Signal::kTraces, SignalSettings{.queue_max = 10}, std::make_unique<ScriptedExporter>(script_),
                   shared_};
};

TEST_F(LaneTest, CollectorAwayThenTheSameRequestAgain) {
  script_.set(Outcome::kRetry);
  lane_.start();
  lane_.push("a", 1);
  lane_.push("b", 1);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  script_.set(Outcome::kDelivered);
  // The flush does not wait for the pause.
  ASSERT_TRUE(wait_finished());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"a", "b"}));
}

TEST_F(LaneTest, CollectorAwayAndNobodyFlushesThenTriedAgainByItself) {
  script_.set(Outcome::kRetry);
  lane_.start();
  lane_.push("a", 1);
  EXPECT_TRUE(script_.wait_until([this] { return script_.attempts == 2; }));
}

TEST_F(LaneTest, RefusedThenNotAgain) {
  const int64_t before = dropped("refused");
  script_.set(Outcome::kRefused);
  lane_.start();
  lane_.push("a", 3);
  ASSERT_TRUE(wait_finished());
  script_.set(Outcome::kDelivered);
  lane_.push("b", 1);
  ASSERT_TRUE(wait_finished());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"b"}));
  EXPECT_EQ(dropped("refused") - before, 3);
}

TEST_F(LaneTest, MoreThanTheQueueHoldsThenTheOldestGoes) {
  const int64_t before = dropped("queue_full");
  script_.set_hang(true);
  lane_.start();
  lane_.push("sending", 4);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  lane_.push("old", 4);
  lane_.push("newer", 4);
  EXPECT_EQ(lane_.queued(), 8u);
  lane_.push("newest", 4);
  EXPECT_EQ(lane_.queued(), 8u);
  EXPECT_EQ(dropped("queue_full") - before, 4);
  script_.set_hang(false);
  ASSERT_TRUE(wait_finished());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"sending", "newer", "newest"}));
  EXPECT_EQ(lane_.queued(), 0u);
}

TEST_F(LaneTest, BatchLargerThanTheQueueThenTaken) {
  lane_.start();
  lane_.push("large", 50);
  ASSERT_TRUE(wait_finished());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"large"}));
}

TEST_F(LaneTest, FinishedWhileTheCollectorIsAwayThenOneMoreTryAndTheRestDropped) {
  const int64_t before = dropped("shutdown");
  // So long that only the end of the lane can end the pause.
  script_.set(Outcome::kRetry, 30 * kSecond);
  lane_.start();
  lane_.push("a", 2);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  lane_.push("b", 2);
  lane_.push("c", 2);
  lane_.finish();
  ASSERT_TRUE(wait_ended());
  EXPECT_EQ(script_.attempts, 2);
  EXPECT_EQ(dropped("shutdown") - before, 6);
}

TEST_F(LaneTest, FinishedThenWhatWaitsIsStillSent) {
  script_.set_hang(true);
  lane_.start();
  for (const char* request : {"a", "b", "c"}) lane_.push(request, 1);
  lane_.finish();
  script_.set_hang(false);
  ASSERT_TRUE(wait_ended());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(LaneTest, CancelledWhileASendHangsThenEnds) {
  const int64_t before = dropped("shutdown");
  script_.set_hang(true);
  lane_.start();
  lane_.push("a", 1);
  lane_.push("b", 2);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  lane_.cancel();
  ASSERT_TRUE(wait_ended());
  EXPECT_EQ(script_.attempts, 1);
  EXPECT_EQ(dropped("shutdown") - before, 3);
}

TEST_F(LaneTest, CollectorAsksToWaitThenAFlushDoesNotHurryIt) {
  script_.set(Outcome::kRetry, 2 * kSecond);
  lane_.start();
  const Nanos start = system_clock().monotonic();
  lane_.push("a", 1);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  script_.set(Outcome::kDelivered);
  ASSERT_TRUE(wait_finished());
  EXPECT_GE(system_clock().monotonic() - start, 2 * kSecond);
}

TEST(Backoff, AttemptsThenTwiceAsLongEachUpToHalfAMinute) {
  Backoff backoff;
  for (Nanos pause = kSecond; pause <= 16 * kSecond; pause *= 2) {
    const Nanos next = backoff.next(0);
    EXPECT_GE(next, pause / 2);
    EXPECT_LE(next, pause);
  }
  for (int i = 0; i < 80; ++i) EXPECT_LE(backoff.next(0), 30 * kSecond);
  EXPECT_EQ(backoff.next(45 * kSecond), 45 * kSecond);
}

TEST(MetricsLane, CollectorAwayThenTheNextCollectionHasIt) {
  g_metrics_recording = true;
  Script script;
  LanesShared shared;
  script.set(Outcome::kRetry);
  MetricsLane lane(SignalSettings{.interval = 3600 * kSecond},
                   otlp::MetricsEncoder("", Temporality::kCumulative, system_clock().wall()),
                   std::make_unique<ScriptedExporter>(script), shared);
  lane.start();
  static_cast<void>(lane.flush());
  ASSERT_TRUE(script.wait_until([&] { return script.attempts == 1; }));
  get_metrics().futures_created.add(1, {{"operation_type", "after_the_failure"}});
  script.set(Outcome::kDelivered);
  const uint64_t number = lane.flush();
  ASSERT_TRUE(shared.progress.wait(system_clock().monotonic() + 20 * kSecond, [&] { return lane.finished(number); }));
  ASSERT_FALSE(script.delivered.empty());
  EXPECT_NE(script.delivered[0].find("after_the_failure"), std::string::npos);

  const size_t before = script.delivered.size();
  lane.finish();
  ASSERT_TRUE(shared.progress.wait(system_clock().monotonic() + 20 * kSecond, [&] { return lane.ended(); }));
  lane.join();
  EXPECT_EQ(script.delivered.size(), before + 1) << "the last interval";
  g_metrics_recording = false;
}

}  // namespace
}  // namespace tuft::telemetry::internal
