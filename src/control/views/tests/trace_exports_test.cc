// Tests of trace exports.
#include "control/views/trace_exports.h"

#include <future>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "control/tests/plane.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::control {
namespace {

class TraceExportTest : public PlaneTest {
 protected:
  Result<TraceExport> make(const UserId& user, const SessionId& session) {
    auto promise = std::make_shared<std::promise<Result<TraceExport>>>();
    auto future = promise->get_future();
    plane().trace_exports().make(user, session,
                                 [promise](Result<TraceExport> made) { promise->set_value(std::move(made)); });
    return future.get();
  }
};

TEST_F(TraceExportTest, WithoutTracingTheErrorNamesTheSetting) {
  boot();
  const auto made = make(alice, session(alice));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->state, TraceExport::State::kFailed);
  EXPECT_NE(made->error.find("telemetry.enabled"), std::string::npos);
}

TEST_F(TraceExportTest, ForeignSessionIsUnknown) {
  boot();
  EXPECT_EQ(make(bob, session(alice)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(make(bob, SessionId("no-such")).error().message, make(bob, session(alice)).error().message);
}

TEST_F(TraceExportTest, ContainsTheSpansOfTheSessionUntilItExpires) {
  telemetry::WithCollector collector;
  const SessionId mine = boot_with_session();
  const SessionId other = session(bob);
  const RunId run = create_model(mine, alice);
  const RunId theirs = create_model(other, bob);
  EXPECT_TRUE(wait(alice, forward_backward(run, alice, 1)).ok());
  EXPECT_TRUE(wait(bob, forward_backward(theirs, bob, 1)).ok());
  const auto made = make(alice, mine);
  ASSERT_TRUE(made.ok());
  ASSERT_EQ(made->state, TraceExport::State::kReady) << made->error;
  const auto file = plane().trace_exports().open(made->token);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->name, "session-" + mine.str() + ".json");
  EXPECT_NE(file->json->find("training_controller.run_forward_backward"), std::string::npos);
  EXPECT_NE(file->json->find(mine.str()), std::string::npos);
  EXPECT_EQ(file->json->find(other.str()), std::string::npos);
  EXPECT_FALSE(plane().trace_exports().open(made->token + "x").ok());
  advance(TraceExports::kKept);
  EXPECT_EQ(plane().trace_exports().open(made->token).error().code, ErrorCode::kNotFound);
}

TEST_F(TraceExportTest, OneExportPerUserAtATime) {
  telemetry::WithCollector collector;
  const SessionId first = boot_with_session();
  const SessionId second = session(alice);
  const RunId run = create_model(first, alice);
  EXPECT_TRUE(wait(alice, forward_backward(run, alice, 1)).ok());
  worker().hold_answers(true);
  std::promise<Result<TraceExport>> made;
  plane().trace_exports().make(alice, first, [&made](Result<TraceExport> done) { made.set_value(std::move(done)); });
  EXPECT_EQ(make(alice, second)->state, TraceExport::State::kPending);
  while (worker().held() == 0) std::this_thread::yield();
  worker().stop_holding();
  EXPECT_EQ(made.get_future().get()->state, TraceExport::State::kReady);
  EXPECT_NE(make(alice, second)->state, TraceExport::State::kPending);
}

// Makes exports of a session with spans, under limits that the test sets.
class TraceShares : public TraceExportTest {
 protected:
  void SetUp() override {
    boot();
    mine_ = session(alice);
    const RunId run = create_model(mine_, alice);
    EXPECT_TRUE(wait(alice, forward_backward(run, alice, 1)).ok());
    with_bounds(TraceExports::kUserBytesMax, TraceExports::kKeptBytesMax);
    size_ = open(made_for(alice))->json->size();
  }
  void TearDown() override { exports_->stop(); }

  // In multiples of the size of one export.
  void with_bounds_of(double user, double all) {
    with_bounds(static_cast<size_t>(user * static_cast<double>(size_)),
                static_cast<size_t>(all * static_cast<double>(size_)));
  }
  std::string made_for(const UserId& user) {
    auto promise = std::make_shared<std::promise<Result<TraceExport>>>();
    auto future = promise->get_future();
    exports_->make(user, mine_, [promise](Result<TraceExport> made) { promise->set_value(std::move(made)); });
    const auto made = future.get();
    EXPECT_TRUE(made.ok() && made->state == TraceExport::State::kReady) << made->error;
    return made->token;
  }
  Result<TraceFile> open(const std::string& token) { return exports_->open(token); }
  bool opens(const std::string& token) { return open(token).ok(); }

 private:
  void with_bounds(size_t user, size_t all) {
    if (exports_ != nullptr) exports_->stop();
    const auto anybody = [](const UserId&, const SessionId&) { return true; };
    exports_ = std::make_shared<TraceExports>(TraceExports::Parts{clock(), no_backends_, anybody, user, all});
  }

  telemetry::WithCollector collector_;
  const ModelBackends no_backends_{{}, {}};
  std::shared_ptr<TraceExports> exports_;
  SessionId mine_;
  size_t size_ = 0;
};

TEST_F(TraceShares, OverAUsersLimitTheirOldestIsDropped) {
  with_bounds_of(2.5, 100);
  const std::string bobs = made_for(bob);
  std::vector<std::string> alices;
  for (int i = 0; i < 5; ++i) alices.push_back(made_for(alice));
  EXPECT_TRUE(opens(bobs));
  for (size_t i = 0; i < alices.size(); ++i) EXPECT_EQ(opens(alices[i]), i >= 3) << i;
}

TEST_F(TraceShares, OverTheTotalTheOldestOfTheLargestUserIsDropped) {
  with_bounds_of(100, 3.5);
  const std::string bobs = made_for(bob);
  std::vector<std::string> alices;
  for (int i = 0; i < 4; ++i) alices.push_back(made_for(alice));
  EXPECT_TRUE(opens(bobs));
  for (size_t i = 0; i < alices.size(); ++i) EXPECT_EQ(opens(alices[i]), i >= 2) << i;
}

TEST_F(TraceShares, OnlyFileOfAUserIsKeptWhateverItsSize) {
  with_bounds_of(0.5, 100);
  const std::string first = made_for(alice);
  EXPECT_TRUE(opens(first));
  EXPECT_TRUE(opens(made_for(alice)));
  EXPECT_FALSE(opens(first));
}

TEST_F(TraceExportTest, WithoutSpansTheErrorGivesTheReason) {
  telemetry::TelemetryConfig settings;
  settings.sampler = "always_off";
  telemetry::WithCollector collector(settings);
  boot();
  const auto made = make(alice, session(alice));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->state, TraceExport::State::kFailed);
  EXPECT_NE(made->error.find("sampling"), std::string::npos);
}

}  // namespace
}  // namespace tuft::control
