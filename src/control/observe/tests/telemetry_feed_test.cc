#include "control/observe/telemetry_feed.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "control/tests/plane.h"
#include "control/tests/recording_store.h"
#include "telemetry/telemetry.h"
#include "telemetry/trace.h"

namespace tuft::control {
namespace {

using telemetry_store::RecordType;

worker::v1::TakeTelemetryResponse::Batch batch(uint64_t number, const std::string& request, bool logs = false) {
  worker::v1::TakeTelemetryResponse::Batch made;
  made.set_number(number);
  made.set_logs(logs);
  made.set_request(request);
  return made;
}

class Feed : public PlaneTest {
 protected:
  Feed() { keep_telemetry(&store_); }
  ~Feed() override { close(); }

  bool wait_for_requests(size_t count) {
    return store_.wait_for([&] { return store_.of_worker(model).size() >= count; });
  }

  RecordingStore store_;
};

TEST_F(Feed, WorkerHasRecordsThenEachComesOnceWithItsSource) {
  boot();
  worker().put_into_outbox(batch(1, "spans of a pass"));
  worker().put_into_outbox(batch(2, "logs of a pass", true));
  ASSERT_TRUE(wait_for_requests(2));
  worker().put_into_outbox(batch(3, "later"));
  ASSERT_TRUE(wait_for_requests(3));
  EXPECT_EQ(store_.of_worker(model), (std::vector<std::string>{"spans of a pass", "logs of a pass", "later"}));
  for (const RecordingStore::Added& added : store_.added()) {
    if (added.worker != model) continue;
    EXPECT_EQ(added.type == RecordType::kLogs, added.request.starts_with("logs"));
  }
}

TEST_F(Feed, AnswerIsLostThenItsRecordsComeWithTheNext) {
  boot();
  worker().put_into_outbox(batch(1, "first"));
  ASSERT_TRUE(wait_for_requests(1));
  // It was not confirmed yet: the next answer has it again, and it is not added twice.
  worker().put_into_outbox(batch(2, "second"));
  ASSERT_TRUE(wait_for_requests(2));
  worker().put_into_outbox(batch(3, "third"));
  ASSERT_TRUE(wait_for_requests(3));
  EXPECT_EQ(store_.of_worker(model), (std::vector<std::string>{"first", "second", "third"}));
  EXPECT_LT(worker().outbox_size(), 3u) << "the feed confirms what has arrived";
}

// A worker that comes back has more than a narrow link carries within the time of a call.
TEST_F(Feed, AnswerIsLateThenLessIsAskedForAtATime) {
  boot(false);
  worker().set_link_bytes(1'300'000);
  for (uint64_t number = 1; number <= 3; ++number) {
    worker().put_into_outbox(batch(number, std::string(600'000, 'x')));
  }
  worker().start();
  EXPECT_TRUE(wait_for_requests(3));
}

TEST_F(Feed, WorkerIsRestartedThenItsNumbersBeginAgain) {
  boot();
  worker().put_into_outbox(batch(1, "of the first life"));
  worker().put_into_outbox(batch(2, "of the first life, too"));
  ASSERT_TRUE(wait_for_requests(2));
  worker().restart();
  worker().put_into_outbox(batch(1, "of the second life"));
  ASSERT_TRUE(wait_for_requests(3));
  EXPECT_EQ(store_.of_worker(model).back(), "of the second life");
}

TEST_F(Feed, ServerShutsDownThenTheLastRecordsOfWorkersAreThereFirst) {
  boot();
  worker().put_into_outbox(batch(1, "the last words"));
  plane().shut_down();
  EXPECT_EQ(store_.of_worker(model), (std::vector<std::string>{"the last words"}));
}

TEST_F(Feed, WorkerIsAwayThenAShutdownDoesNotWaitForIt) {
  boot(false);
  const Nanos begin = system_clock().monotonic();
  plane().shut_down();
  close();
  EXPECT_LT(system_clock().monotonic() - begin, 10 * kSecond);
  EXPECT_TRUE(store_.of_worker(model).empty());
}

TEST_F(Feed, MetricsComeOfTheServerAndOfItsWorkers) {
  boot(false);
  worker().set_metrics_snapshot("a snapshot");
  worker().start();
  ASSERT_TRUE(store_.wait_for([&] {
    const auto metrics = store_.metrics();
    const auto is_own = [](const auto& one) { return one.first.empty() && !one.second.empty(); };
    const auto is_workers = [&](const auto& one) { return one == std::pair(model, std::string("a snapshot")); };
    return std::any_of(metrics.begin(), metrics.end(), is_own) &&
           std::any_of(metrics.begin(), metrics.end(), is_workers);
  }));
}

TEST_F(Feed, ServerRecordsThenItsOwnSpansAreThere) {
  ASSERT_TRUE(telemetry::init_telemetry({.enabled = false, .outbox = true}).ok());
  boot();
  telemetry::get_tracer("tuft.test").start_span("feed.own_span");
  const auto is_there = [this] {
    const auto own = store_.of_worker("");
    return std::any_of(own.begin(), own.end(),
                       [](const std::string& one) { return one.find("feed.own_span") != std::string::npos; });
  };
  EXPECT_TRUE(store_.wait_for(is_there));
  telemetry::get_tracer("tuft.test").start_span("feed.last_span");
  plane().shut_down();
  const auto own = store_.of_worker("");
  EXPECT_NE(own.back().find("feed.last_span"), std::string::npos) << "a shutdown takes what was recorded until then";
  telemetry::shutdown_telemetry();
}

TEST_F(Feed, SessionsThenTheirOwnersAreKnownAlsoAfterTheirEnd) {
  boot();
  const SessionId one = session(alice);
  EXPECT_EQ(plane().owner_of(one.str()), "alice");
  EXPECT_EQ(plane().owner_of("nobody's"), "");
  ASSERT_TRUE(plane().end_session(alice, one, {}).ok());
  EXPECT_EQ(plane().owner_of(one.str()), "alice");
}

}  // namespace
}  // namespace tuft::control
