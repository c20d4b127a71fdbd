// The registry of workers that join, and an actor whose workers come from it.
#include "actor/worker_registry.h"

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actor/supervisor.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::actor {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using worker::v1::JoinRequest;

// A connection whose other end is in the test.
class TestConnection final : public join::Connection {
 public:
  TestConnection() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair_.data()), 0);
    ended_ = ::eventfd(0, EFD_CLOEXEC);
  }
  ~TestConnection() override {
    for (const int descriptor : {pair_[0], pair_[1], ended_}) ::close(descriptor);
  }
  int take_descriptor() override {
    taken->set_value();
    return ::dup(pair_[0]);
  }
  int ended_fd() const override { return ended_; }
  join::End end() const override { return join::End::kPeerClosed; }
  bool heard() const override { return is_heard; }
  Nanos last_sign() const override { return 0; }

  bool is_heard = false;
  const std::shared_ptr<std::promise<void>> taken = std::make_shared<std::promise<void>>();
  void close() override {
    const uint64_t one = 1;
    EXPECT_EQ(::write(ended_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

 private:
  std::array<int, 2> pair_{};
  int ended_ = -1;
};

class Registry : public ::testing::Test {
 protected:
  static RegistryOptions options() {
    RegistryOptions options;
    options.version = "1.0";
    options.telemetry = "{}";
    options.proof_file = "/shared/proof";
    options.proof = "of it";
    options.bucket = "{}";
    options.models = {{"m", "digest", {"--max-model-len", "64"}}, {"n", "digest", {}}};
    options.standbys_max = 2;
    return options;
  }
  static JoinRequest request(const std::string& worker_id = "w", const std::string& base_model = "m") {
    JoinRequest request;
    request.set_version("1.0");
    request.set_worker_id(worker_id);
    request.set_base_model(base_model);
    request.set_config_sha256("digest");
    request.set_host("host of " + worker_id);
    return request;
  }
  // Returns what to call at the end of the connection.
  std::function<void(join::End)> join(const std::string& worker_id, int64_t adapters = 0) {
    JoinRequest joins = request(worker_id);
    joins.set_adapters(adapters);
    const auto answer = registry_.admit(joins, "10.0.0.1");
    EXPECT_EQ(answer.error(), "");
    return registry_.connected(worker_id, std::make_unique<TestConnection>());
  }
  Supervision of_joined() const {
    Supervision supervision;
    supervision.base_model = "m";
    supervision.lease = 10 * kSecond;
    supervision.shared.rows = registry_.rows("m");
    return supervision;
  }
  // The connection of the worker ends.
  static void lose(WorkerLife& life) {
    life.kill();
    (void)life.reap();
  }
  std::vector<std::string> states() const {
    std::vector<std::string> found;
    for (const WorkerRow& row : registry_.rows("m")->all()) found.emplace_back(worker_state_name(row.state));
    return found;
  }

  WorkerRegistry registry_{options()};
};

TEST_F(Registry, AWorkerGetsItsFlags) {
  const auto answer = registry_.admit(request(), "10.0.0.1");
  EXPECT_EQ(answer.error(), "");
  EXPECT_THAT(answer.flags(), ::testing::ElementsAre("--max-model-len", "64"));
  EXPECT_EQ(answer.telemetry(), "{}");
  EXPECT_EQ(answer.proof_file(), "/shared/proof");
  EXPECT_EQ(answer.proof(), "of it");
  EXPECT_EQ(answer.bucket(), "{}");
}

TEST_F(Registry, AnotherVersionModelOrConfigurationIsRefused) {
  JoinRequest other = request();
  other.set_version("2.0");
  EXPECT_THAT(registry_.admit(other, "a").error(), HasSubstr("tuft 2.0"));
  EXPECT_THAT(registry_.admit(request("w", "x"), "a").error(), HasSubstr("those are: m, n"));
  other = request();
  other.set_config_sha256("another");
  const auto refusal = registry_.admit(other, "a");
  EXPECT_THAT(refusal.error(), HasSubstr("config.json"));
  EXPECT_FALSE(refusal.may_retry());
  EXPECT_TRUE(states().empty());
}

TEST_F(Registry, AsManyStandByAsMay) {
  (void)join("one");
  EXPECT_EQ(registry_.admit(request("two"), "a").error(), "");
  const auto refusal = registry_.admit(request("three"), "a");
  EXPECT_TRUE(refusal.may_retry());
  EXPECT_THAT(refusal.error(), HasSubstr("stand by"));
  registry_.gave_up("two");
  EXPECT_EQ(registry_.admit(request("three"), "a").error(), "");
}

TEST_F(Registry, TheOneThatHasWaitedLongestIsNext) {
  (void)join("one");
  (void)join("two");
  const auto source = registry_.source("m");
  ASSERT_TRUE(source->available());
  const auto life = source->begin(1, {});
  ASSERT_TRUE(life.ok());
  EXPECT_EQ((*life)->host(), "host of one");
  EXPECT_FALSE(registry_.source("n")->available());
}

TEST_F(Registry, OneThatHasReadItsWeightsIsNextBeforeOneThatReads) {
  (void)join("one");
  EXPECT_FALSE(registry_.source("m")->has_loaded());
  auto loaded = std::make_unique<TestConnection>();
  loaded->is_heard = true;
  EXPECT_EQ(registry_.admit(request("two"), "a").error(), "");
  (void)registry_.connected("two", std::move(loaded));
  const auto source = registry_.source("m");
  EXPECT_TRUE(source->has_loaded());
  EXPECT_EQ((*source->begin(1, {}))->host(), "host of two");
  EXPECT_FALSE(source->has_loaded());
}

TEST_F(Registry, OneThatHoldsAdaptersIsNext) {
  (void)join("one");
  (void)join("two", 3);
  const auto source = registry_.source("m");
  EXPECT_EQ((*source->begin(1, {}))->host(), "host of two");
}

TEST_F(Registry, AfterALossAPlaceWaitsAWhileForAWorkerThatHoldsAdapters) {
  (void)join("one");
  const auto source = registry_.source("m");
  ASSERT_TRUE(source->available());
  const auto life = std::move(*source->begin(1, {}));
  lose(*life);
  (void)join("two");
  EXPECT_FALSE(source->available()) << "the one that was lost may come back";
  EXPECT_TRUE(registry_.source("m")->available()) << "another place lost nobody";
  (void)join("one", 1);
  EXPECT_TRUE(source->available());
  EXPECT_EQ((*source->begin(2, {}))->host(), "host of one");
}

TEST_F(Registry, WorkersThatComeBackGetTheirFormerPlaces) {
  const auto first = registry_.source("m");
  const auto second = registry_.source("m");
  (void)join("one");
  const auto of_one = std::move(*first->begin(1, {}));
  (void)join("two");
  const auto of_two = std::move(*second->begin(2, {}));
  lose(*of_one);
  lose(*of_two);
  (void)join("two", 2);
  EXPECT_FALSE(first->available()) << "its runs are at the second place";
  EXPECT_EQ(*first->begin(3, {}), nullptr);
  (void)join("one", 1);
  EXPECT_EQ((*first->begin(3, {}))->host(), "host of one");
  EXPECT_EQ((*second->begin(4, {}))->host(), "host of two");
}

TEST_F(Registry, AWorkerThatComesBackIsLeftToAPlaceThatDoesNotMissItYet) {
  const auto first = registry_.source("m");
  const auto second = registry_.source("m");
  (void)join("one");
  const auto of_one = std::move(*first->begin(1, {}));
  (void)join("one", 1);
  EXPECT_FALSE(second->available());
  (void)join("two", 1);
  EXPECT_EQ((*second->begin(2, {}))->host(), "host of two") << "it holds adapters of no place";
  EXPECT_TRUE(first->available());
}

TEST_F(Registry, AWorkerWithAdaptersOfNoPlaceDoesNotTakeThatOfOneThatMayComeBack) {
  const auto source = registry_.source("m");
  (void)join("one");
  const auto life = std::move(*source->begin(1, {}));
  (void)join("two", 1);
  lose(*life);
  EXPECT_FALSE(source->available());
  (void)join("one", 1);
  EXPECT_EQ((*source->begin(2, {}))->host(), "host of one");
}

TEST_F(Registry, AWorkerGetsToKnowHowLongItKeepsWhatItHolds) {
  RegistryOptions keeping = options();
  keeping.keep = 7 * kSecond;
  WorkerRegistry registry(keeping);
  EXPECT_EQ(registry.admit(request(), "10.0.0.1").keep_milliseconds(), 7000);
}

TEST_F(Registry, WhatAWorkerSaysIsCutBetweenCharacters) {
  JoinRequest named = request("one");
  std::string host = "a";
  for (int i = 0; i < 200; ++i) host += "\u00e9";
  named.set_host(host);
  EXPECT_EQ(registry_.admit(named, "a").error(), "");
  (void)registry_.connected("one", std::make_unique<TestConnection>());
  EXPECT_EQ(registry_.rows("m")->all()[0].host.size(), 255U);
}

TEST_F(Registry, NobodyJoinsOnceItIsClosed) {
  EXPECT_EQ(registry_.admit(request("one"), "a").error(), "");
  registry_.close();
  (void)registry_.connected("one", std::make_unique<TestConnection>());
  EXPECT_FALSE(registry_.source("m")->available());
  const worker::v1::JoinResponse refusal = registry_.admit(request("two"), "a");
  EXPECT_EQ(refusal.error(), "this server stops");
  EXPECT_TRUE(refusal.may_retry());
}

TEST_F(Registry, AStandbyThatIsGoneIsNotNext) {
  const auto end = join("one");
  EXPECT_EQ(states(), std::vector<std::string>{"standby"});
  end(join::End::kBroken);
  EXPECT_EQ(states(), std::vector<std::string>{"dead"});
  EXPECT_THAT(registry_.rows("m")->all()[0].reason, HasSubstr("lost its connection"));
  EXPECT_FALSE(registry_.source("m")->available());
}

TEST_F(Registry, AnActorWaitsForAWorkerToJoin) {
  const auto actor = make_joined_actor(of_joined(), registry_.source("m"));
  ASSERT_TRUE(actor->start().ok());
  EXPECT_FALSE(actor->ready());
  auto connection = std::make_unique<TestConnection>();
  const auto taken = connection->taken;
  EXPECT_EQ(registry_.admit(request("one"), "10.0.0.1").error(), "");
  (void)registry_.connected("one", std::move(connection));
  // Its turn has come, and it is asked whether it is ready.
  EXPECT_EQ(taken->get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(states(), std::vector<std::string>{"starting"});
  actor->stop();
  EXPECT_EQ(states(), std::vector<std::string>{"dead"});
}

TEST_F(Registry, AWorkerThatJoinsDoesNotWaitForTheDelayOfARestart) {
  Supervision supervision = of_joined();
  supervision.restart_delay = 3600 * kSecond;
  supervision.restart_delay_max = 3600 * kSecond;
  const auto actor = make_joined_actor(supervision, registry_.source("m"));
  ASSERT_TRUE(actor->start().ok());
  for (const std::string worker : {"one", "two"}) {
    auto connection = std::make_unique<TestConnection>();
    const auto taken = connection->taken;
    const int ended = ::dup(connection->ended_fd());
    EXPECT_EQ(registry_.admit(request(worker), "10.0.0.1").error(), "");
    (void)registry_.connected(worker, std::move(connection));
    ASSERT_EQ(taken->get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready) << worker;
    const uint64_t one = 1;
    EXPECT_EQ(::write(ended, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    ::close(ended);
  }
  actor->stop();
}

TEST_F(Registry, AWorkerWhoseConnectionEndedIsNotRestartedWhenItIsBack) {
  const telemetry::testing::RecordedMetrics metrics;
  const auto actor = make_joined_actor(of_joined(), registry_.source("m"));
  ASSERT_TRUE(actor->start().ok());
  const auto serve = [&](const std::string& worker) {
    auto connection = std::make_unique<TestConnection>();
    const auto taken = connection->taken;
    const int ended = ::dup(connection->ended_fd());
    JoinRequest joins = request(worker);
    joins.set_adapters(1);
    EXPECT_EQ(registry_.admit(joins, "10.0.0.1").error(), "");
    (void)registry_.connected(worker, std::move(connection));
    EXPECT_EQ(taken->get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready) << worker;
    const uint64_t one = 1;
    EXPECT_EQ(::write(ended, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    ::close(ended);
    return metrics.counter("tuft.worker.restarts", {{"base_model", "m"}});
  };
  EXPECT_EQ(serve("one"), 0);
  EXPECT_EQ(serve("one"), 0);
  EXPECT_EQ(serve("two"), 1);
  actor->stop();
}

// A life that cannot be reached, and whose kill() has no effect before the test ends it.
class StuckLife final : public WorkerLife {
 public:
  StuckLife(int ended, std::promise<void>& killed) : ended_(ended), killed_(killed) {}

  uint64_t row() const override { return 0; }
  pid_t pid() const override { return 1; }
  const std::string& host() const override { return host_; }
  int ended_fd() const override { return ended_; }
  std::shared_ptr<grpc::Channel> connect() override { return nullptr; }
  void ask_to_end() override {}
  void kill() override { killed_.set_value(); }
  std::string reap() override {
    pollfd ended{ended_, POLLIN, 0};
    while (::poll(&ended, 1, -1) < 0) {
    }
    return "was killed";
  }

 private:
  const int ended_;
  std::promise<void>& killed_;
  const std::string host_ = "host";
};

class StuckSource final : public WorkerSource {
 public:
  StuckSource(int ended, std::promise<void>& killed) : ended_(ended), killed_(killed) {}

  void on_available(std::function<void()>) override {}
  bool available() const override { return !begun_; }
  Result<std::unique_ptr<WorkerLife>> begin(uint64_t, const std::string&) override {
    begun_ = true;
    return std::unique_ptr<WorkerLife>(std::make_unique<StuckLife>(ended_, killed_));
  }

 private:
  const int ended_;
  std::promise<void>& killed_;
  bool begun_ = false;
};

TEST(Supervision, AWorkerThatEndsLateDoesNotKeepCallsWaiting) {
  const int ended = ::eventfd(0, EFD_CLOEXEC);
  std::promise<void> killed;
  Supervision supervision;
  supervision.base_model = "m";
  supervision.start_timeout = 1;
  const auto actor = make_joined_actor(supervision, std::make_unique<StuckSource>(ended, killed));
  ASSERT_TRUE(actor->start().ok());
  killed.get_future().wait();
  std::promise<std::string> reason;
  actor->describe({}, {}, [&reason](const Result<worker::v1::DescribeResponse>& answer) {
    reason.set_value(answer.ok() ? "" : answer.error().reason);
  });
  auto told = reason.get_future();
  EXPECT_EQ(told.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const uint64_t one = 1;
  EXPECT_EQ(::write(ended, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  EXPECT_EQ(told.get(), "worker_starting");
  actor->stop();
  ::close(ended);
}

TEST_F(Registry, TwoPlacesThenEachTakesAWorkerOnce) {
  const auto first = registry_.source("m");
  const auto second = registry_.source("m");
  int woken = 0;
  first->on_available([&] { ++woken; });
  second->on_available([&] { ++woken; });
  EXPECT_EQ(registry_.admit(request("one"), "10.0.0.1").error(), "");
  (void)registry_.connected("one", std::make_unique<TestConnection>());
  EXPECT_EQ(woken, 2);
  EXPECT_NE(first->begin(1, "").value(), nullptr);
  EXPECT_FALSE(second->available());
  EXPECT_EQ(second->begin(2, "").value(), nullptr);
}

TEST(Rows, OnlyTheNewestOfThoseThatAreGoneAreKept) {
  WorkerRows rows;
  for (int i = 0; i < 100; ++i) rows.set(rows.add({}), WorkerState::kDead, "gone");
  rows.add({});
  EXPECT_THAT(rows.all(), SizeIs(33));
  EXPECT_EQ(rows.all().back().number, 101U);
  rows.set(100, WorkerState::kReady);
  EXPECT_EQ(rows.count(WorkerState::kReady), 0);
}

}  // namespace
}  // namespace tuft::actor
