// Retries, overflow and the end of an export thread, with a scripted exporter.
#include "telemetry/export/export_thread.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "telemetry/record/recording.h"
#include "telemetry/testing/program_metrics.h"

namespace tuft::telemetry::internal {
namespace {

using Outcome = ExportResult::Outcome;

// The test's view of the exporter; outlives it.
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

class ExportThreadTest : public ::testing::Test {
 protected:
  ExportThreadTest() { g_metrics_recording = true; }
  ~ExportThreadTest() override {
    thread_.cancel();
    thread_.join();
    g_metrics_recording = false;
  }
  bool wait_finished() {
    const uint64_t number = thread_.flush();
    return shared_.progress.wait(system_clock().monotonic() + 20 * kSecond, [&] { return thread_.finished(number); });
  }
  bool wait_ended() {
    return shared_.progress.wait(system_clock().monotonic() + 20 * kSecond, [&] { return thread_.ended(); });
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
  ExportShared shared_;
  RecordExportThread thread_{Signal::kTraces, SignalSettings{.queue_max = 10},
                             std::make_unique<ScriptedExporter>(script_), shared_};
};

TEST_F(ExportThreadTest, CollectorAwayThenTheSameRequestAgain) {
  script_.set(Outcome::kRetry);
  thread_.start();
  thread_.push("a", 1);
  thread_.push("b", 1);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  script_.set(Outcome::kDelivered);
  // The flush does not wait for the pause.
  ASSERT_TRUE(wait_finished());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"a", "b"}));
}

TEST_F(ExportThreadTest, CollectorAwayAndNobodyFlushesThenTriedAgainByItself) {
  script_.set(Outcome::kRetry);
  thread_.start();
  thread_.push("a", 1);
  EXPECT_TRUE(script_.wait_until([this] { return script_.attempts == 2; }));
}

TEST_F(ExportThreadTest, RefusedThenNotAgain) {
  const int64_t before = dropped("refused");
  script_.set(Outcome::kRefused);
  thread_.start();
  thread_.push("a", 3);
  ASSERT_TRUE(wait_finished());
  script_.set(Outcome::kDelivered);
  thread_.push("b", 1);
  ASSERT_TRUE(wait_finished());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"b"}));
  EXPECT_EQ(dropped("refused") - before, 3);
}

TEST_F(ExportThreadTest, MoreThanTheQueueHoldsThenTheOldestGoes) {
  const int64_t before = dropped("queue_full");
  script_.set_hang(true);
  thread_.start();
  thread_.push("sending", 4);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  thread_.push("old", 4);
  thread_.push("newer", 4);
  EXPECT_EQ(thread_.queued(), 8u);
  thread_.push("newest", 4);
  EXPECT_EQ(thread_.queued(), 8u);
  EXPECT_EQ(dropped("queue_full") - before, 4);
  script_.set_hang(false);
  ASSERT_TRUE(wait_finished());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"sending", "newer", "newest"}));
  EXPECT_EQ(thread_.queued(), 0u);
}

TEST_F(ExportThreadTest, BatchLargerThanTheQueueThenTaken) {
  thread_.start();
  thread_.push("large", 50);
  ASSERT_TRUE(wait_finished());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"large"}));
}

TEST_F(ExportThreadTest, FinishedWhileTheCollectorIsAwayThenOneMoreTryAndTheRestDropped) {
  const int64_t before = dropped("shutdown");
  // The pause is so long that only the end of the thread can end it.
  script_.set(Outcome::kRetry, 30 * kSecond);
  thread_.start();
  thread_.push("a", 2);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  thread_.push("b", 2);
  thread_.push("c", 2);
  thread_.finish();
  ASSERT_TRUE(wait_ended());
  EXPECT_EQ(script_.attempts, 2);
  EXPECT_EQ(dropped("shutdown") - before, 6);
}

TEST_F(ExportThreadTest, FinishedThenTheQueueIsStillSent) {
  script_.set_hang(true);
  thread_.start();
  for (const char* request : {"a", "b", "c"}) thread_.push(request, 1);
  thread_.finish();
  script_.set_hang(false);
  ASSERT_TRUE(wait_ended());
  EXPECT_EQ(script_.delivered, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(ExportThreadTest, CancelledWhileASendHangsThenEnds) {
  const int64_t before = dropped("shutdown");
  script_.set_hang(true);
  thread_.start();
  thread_.push("a", 1);
  thread_.push("b", 2);
  ASSERT_TRUE(script_.wait_until([this] { return script_.attempts == 1; }));
  thread_.cancel();
  ASSERT_TRUE(wait_ended());
  EXPECT_EQ(script_.attempts, 1);
  EXPECT_EQ(dropped("shutdown") - before, 3);
}

TEST_F(ExportThreadTest, CollectorAsksToWaitThenAFlushDoesNotHurryIt) {
  script_.set(Outcome::kRetry, 2 * kSecond);
  thread_.start();
  const Nanos start = system_clock().monotonic();
  thread_.push("a", 1);
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

TEST(MetricsExportThread, CollectorAwayThenTheNextCollectionHasIt) {
  g_metrics_recording = true;
  Script script;
  ExportShared shared;
  script.set(Outcome::kRetry);
  MetricsExportThread thread(SignalSettings{.interval = 3600 * kSecond},
                             otlp::MetricsEncoder("", Temporality::kCumulative, system_clock().wall()),
                             std::make_unique<ScriptedExporter>(script), shared);
  thread.start();
  static_cast<void>(thread.flush());
  ASSERT_TRUE(script.wait_until([&] { return script.attempts == 1; }));
  testing::program_metrics().created.add(1, {{"operation_type", "after_the_failure"}});
  script.set(Outcome::kDelivered);
  const uint64_t number = thread.flush();
  ASSERT_TRUE(shared.progress.wait(system_clock().monotonic() + 20 * kSecond, [&] { return thread.finished(number); }));
  ASSERT_FALSE(script.delivered.empty());
  EXPECT_NE(script.delivered[0].find("after_the_failure"), std::string::npos);

  const size_t before = script.delivered.size();
  thread.finish();
  ASSERT_TRUE(shared.progress.wait(system_clock().monotonic() + 20 * kSecond, [&] { return thread.ended(); }));
  thread.join();
  EXPECT_EQ(script.delivered.size(), before + 1) << "the last interval";
  g_metrics_recording = false;
}

}  // namespace
}  // namespace tuft::telemetry::internal
