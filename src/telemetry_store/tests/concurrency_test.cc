// Feeding and asking at the same time, while segments are sealed and dropped, and a queue that is full.
#include <atomic>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

class Concurrency : public StoreOnDiskTest {
 protected:
  Concurrency() {
    options_.disk_bytes_max = 2 << 20;
    options_.memory_bytes_max = 4 << 20;
  }
};

TEST_F(Concurrency, QueriesSeeAConsistentStoreWhileItIsFed) {
  std::atomic<bool> ended = false;
  std::vector<std::thread> askers;
  for (int i = 0; i < 2; ++i) {
    askers.emplace_back([this, &ended] {
      while (!ended) {
        const auto page = store_->traces(kAlice, {}, {.limit = 20});
        ASSERT_TRUE(page.ok());
        for (const TraceSummary& trace : page->traces) EXPECT_EQ(trace.owner, "alice");
        const auto logs = store_->logs(kAlice, {.filter = {.text = "body"}, .page = {.limit = 5}});
        ASSERT_TRUE(logs.ok());
        for (const LogRecord& log : logs->logs) EXPECT_EQ(log.owner, "alice");
        if (!page->traces.empty()) {
          const auto trace = store_->trace(kAlice, page->traces.front().trace_id, 10);
          // It may have been dropped meanwhile.
          EXPECT_TRUE(!trace.ok() || trace->spans.front().owner == "alice");
        }
        (void)store_->metrics(kOperator);
        (void)store_->steps(kAlice, "run", 0, 10);
        (void)store_->state();
      }
    });
  }
  std::vector<std::thread> feeders;
  for (uint64_t feeder = 0; feeder < 2; ++feeder) {
    feeders.emplace_back([this, feeder] {
      for (uint64_t i = 1; i <= 300; ++i) {
        std::vector<BuiltSpan> spans;
        std::vector<BuiltLog> logs;
        for (uint64_t n = 0; n < 20; ++n) {
          const BuiltAttributes owner = {{"tuft.user", n % 2 == 0 ? "alice" : "bob"}};
          spans.push_back({.trace = feeder * 1'000'000 + i * 100 + n,
                           .span = i,
                           .start = now() + static_cast<Nanos>(i),
                           .attributes = owner});
          logs.push_back({.time = now(), .attributes = owner});
        }
        store_->add(RecordType::kSpans, build_spans(spans), {});
        store_->add(RecordType::kLogs, build_logs(logs), {});
        store_->add_metrics(build_metrics({{.name = "g", .value = static_cast<double>(i)}}), {});
        store_->add_step({.run = "run", .owner = "alice", .step = static_cast<int64_t>(i)});
        ASSERT_TRUE(store_->settle(20 * kSecond));
      }
    });
  }
  for (std::thread& feeder : feeders) feeder.join();
  ended = true;
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(store_->state().dropped_records, 0U);
  EXPECT_EQ(store_->steps(kAlice, "run", 0, 1000).size(), 300U);
}

TEST_F(Concurrency, AFullQueueDropsTheNewestAndCountsThem) {
  const std::string large = build_logs({{.time = now(), .body = std::string(900'000, 'x')}});
  for (int i = 0; i < 200; ++i) store_->add(RecordType::kLogs, large, {});
  ASSERT_TRUE(store_->settle(20 * kSecond));
  EXPECT_GT(store_->state().dropped_records, 0U);
  const uint64_t before = store_->state().dropped_records;
  add(std::vector<BuiltLog>{{.time = now() + 1, .body = "after"}});
  EXPECT_EQ(store_->state().dropped_records, before);
  EXPECT_EQ(bodies(kOperator, {}).front(), "after");
}

TEST_F(Concurrency, StepsOfALongRunAreThinnedEvenly) {
  // An eighth of 4 MiB holds fewer steps than these.
  for (int64_t step = 1; step <= 20'000; ++step) {
    store_->add_step(
        {.run = "run", .owner = "alice", .step = step, .time = now(), .loss = 1.0 / static_cast<double>(step)});
    if (step % 1000 != 0) continue;
    ASSERT_TRUE(store_->settle(20 * kSecond));
  }
  const std::vector<RunStep> all = store_->steps(kAlice, "run", 0, 100'000);
  ASSERT_GT(all.size(), 1000U);
  EXPECT_LT(all.size(), 10'000U);
  EXPECT_EQ(all.front().step, 1);
  EXPECT_EQ(all.back().step, 20'000);
  const std::vector<RunStep> few = store_->steps(kAlice, "run", 10'000, 11);
  ASSERT_EQ(few.size(), 11U);
  EXPECT_GT(few.front().step, 10'000);
  EXPECT_EQ(few.back().step, 20'000);
  EXPECT_NEAR(static_cast<double>(few[5].step), 15'000, 2500);
  // A run that goes back to a checkpoint loses the steps after it.
  store_->add_step({.run = "run", .owner = "alice", .step = 20'000, .loss = 7});
  ASSERT_TRUE(store_->settle(kSecond));
  EXPECT_EQ(store_->steps(kAlice, "run", 0, 100'000).back().loss, 7);
  const size_t kept = store_->steps(kAlice, "run", 0, 100'000).size();
  reopen();
  EXPECT_GE(store_->steps(kAlice, "run", 0, 100'000).size(), kept / 2);
}

}  // namespace
}  // namespace tuft::telemetry_store
