// Results in the persistent store: how long they are there, and how they are read after a restart.
#include <atomic>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "control/tests/plane.h"

namespace tuft::control {
namespace {

class StoredResults : public PlaneTest {
 protected:
  StoredResults() { keep_state(); }

  // Returns a finished sample of alice, whose result nobody has fetched.
  RequestId finished_sample() {
    if (sampler_.empty()) sampler_ = *try_sampler(session(alice), alice, 0, model);
    const RequestId request = sample(sampler_, alice);
    EXPECT_TRUE(durable().ok());
    return request;
  }
  // Restarts the server; results are only in the store then.
  RequestId finished_before_a_restart() {
    boot();
    const RequestId request = finished_sample();
    crash_and_boot();
    return request;
  }
  static std::string key_of(const RequestId& request) { return "persistence-tuft-server::result::" + request.str(); }
  // Returns how many keys of this kind the store has.
  size_t count(const std::string& kind) {
    size_t count = 0;
    for (const auto& [key, value] : contents().copy()) count += key.find("::" + kind + "::") != std::string::npos;
    return count;
  }

  // A poll, which may have to wait for the store.
  struct Poll {
    std::shared_ptr<std::promise<Result<FutureSnapshot>>> promise =
        std::make_shared<std::promise<Result<FutureSnapshot>>>();
    std::future<Result<FutureSnapshot>> answer = promise->get_future();
    ControlPlane::WaitId id = 0;

    bool has_answer() const { return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
    Result<FutureSnapshot> get() {
      if (answer.wait_for(std::chrono::seconds(20)) == std::future_status::ready) return answer.get();
      return internal_error("the poll did not end within 20 s");
    }
  };
  // A second answer to the same poll throws, which ends the test.
  Poll poll(const RequestId& request) {
    Poll poll;
    poll.id = plane().wait_future(alice, request, [promise = poll.promise](Result<FutureSnapshot> snapshot) {
      promise->set_value(std::move(snapshot));
    });
    return poll;
  }
  static std::string bytes_of(const Result<FutureSnapshot>& snapshot) {
    if (!snapshot.ok()) return "error: " + snapshot.error().message;
    if (snapshot->value == nullptr) return "no value";
    return std::get<ProtobufResult>(*snapshot->value).bytes;
  }

 private:
  SamplerId sampler_;
};

TEST_F(StoredResults, ARestartReadsAResultOnlyWhenItIsAskedFor) {
  const RequestId request = finished_before_a_restart();
  contents().put(key_of(request), "changed after the restart");
  EXPECT_EQ(bytes_of(wait(alice, request)), "changed after the restart");
  // It is read once.
  contents().erase(key_of(request));
  EXPECT_EQ(bytes_of(wait(alice, request)), "changed after the restart");
}

TEST_F(StoredResults, PollsThatComeMeanwhileEndWithTheSameRead) {
  const RequestId request = finished_before_a_restart();
  const std::string bytes = contents().copy().at(key_of(request));
  contents().hold(true);
  std::vector<Poll> polls;
  for (int i = 0; i < 3; ++i) polls.push_back(poll(request));
  for (const Poll& each : polls) EXPECT_FALSE(each.has_answer());
  // The end of a wait says that the result is not there yet.
  plane().end_wait(polls[1].id);
  const auto ended = polls[1].get();
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  EXPECT_EQ(ended->state, FutureSnapshot::State::kPending);
  EXPECT_EQ(ended->queue_state, QueueState::kActive);
  polls.push_back(poll(request));
  contents().hold(false);
  for (const size_t i : {0U, 2U, 3U}) EXPECT_EQ(bytes_of(polls[i].get()), bytes) << i;
  EXPECT_EQ(bytes_of(wait(alice, request)), bytes);
}

TEST_F(StoredResults, EveryWaitMayEndBeforeTheRead) {
  const RequestId request = finished_before_a_restart();
  contents().hold(true);
  Poll only = poll(request);
  plane().end_wait(only.id);
  EXPECT_EQ(only.get()->state, FutureSnapshot::State::kPending);
  contents().hold(false);
  EXPECT_EQ(wait(alice, request)->state, FutureSnapshot::State::kReady);
}

TEST_F(StoredResults, AReadThatFailsEndsEveryPollAndTheNextOneReadsAgain) {
  const RequestId request = finished_before_a_restart();
  contents().hold(true);
  std::vector<Poll> polls;
  for (int i = 0; i < 3; ++i) polls.push_back(poll(request));
  contents().set_reachable(false);
  contents().hold(false);
  for (Poll& each : polls) {
    const auto answer = each.get();
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(answer.error().reason, "store_unavailable");
  }
  EXPECT_EQ(wait(alice, request).error().code, ErrorCode::kUnavailable);
  contents().set_reachable(true);
  EXPECT_EQ(wait(alice, request)->state, FutureSnapshot::State::kReady);
}

TEST_F(StoredResults, AResultThatIsNotInTheStoreIsGone) {
  const RequestId request = finished_before_a_restart();
  contents().erase(key_of(request));
  EXPECT_EQ(wait(alice, request).error().code, ErrorCode::kGone);
  EXPECT_EQ(wait(alice, request).error().code, ErrorCode::kGone);
}

TEST_F(StoredResults, AShutDownEndsAPollThatWaitsForARead) {
  const RequestId request = finished_before_a_restart();
  contents().hold(true);
  Poll waiting = poll(request);
  plane().shut_down();
  EXPECT_EQ(waiting.get().error().reason, "shutting_down");
  Poll late = poll(request);
  // The store is closed while it hangs.
  close();
  EXPECT_EQ(late.get().error().code, ErrorCode::kUnavailable);
  contents().hold(false);
}

TEST_F(StoredResults, AResultThatIsDroppedDuringItsReadIsDelivered) {
  const RequestId request = finished_before_a_restart();
  contents().hold(true);
  Poll waiting = poll(request);
  advance((config().limits.future_retention_seconds + 1) * kSecond);
  contents().hold(false);
  const auto answer = waiting.get();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->state, FutureSnapshot::State::kReady);
  EXPECT_EQ(wait(alice, request).error().code, ErrorCode::kGone);
  ASSERT_TRUE(durable().ok());
  EXPECT_EQ(count("result"), 0U);
}

// Else the record of its result would be replaced, and the client that has read it would be told otherwise later.
TEST_F(StoredResults, AResultThatIsThereIsNotCancelledAfterARestart) {
  const RequestId request = finished_before_a_restart();
  ASSERT_TRUE(plane().cancel_future(alice, request).ok());
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_FALSE(value<ProtobufResult>(alice, request).bytes.empty());
}

// Polls race with reads that fail, with ends of waits and with the restart.
TEST_F(StoredResults, EveryPollEndsOnceWhateverHappensFirst) {
  boot();
  std::vector<RequestId> requests;
  for (int i = 0; i < 20; ++i) requests.push_back(finished_sample());
  for (int round = 0; round < 5; ++round) {
    crash_and_boot();
    std::vector<Poll> polls;
    std::atomic<bool> stop = false;
    std::thread flipper([&] {
      for (bool on = false; !stop; on = !on) contents().set_reachable(on);
    });
    for (int i = 0; i < 10; ++i) {
      for (const RequestId& request : requests) {
        polls.push_back(poll(request));
        if (polls.size() % 3 == 0) plane().end_wait(polls.back().id);
      }
    }
    for (Poll& each : polls) {
      const auto answer = each.get();
      EXPECT_TRUE(answer.ok() || answer.error().code == ErrorCode::kUnavailable) << answer.error().message;
    }
    stop = true;
    flipper.join();
    contents().set_reachable(true);
    for (const RequestId& request : requests) EXPECT_EQ(wait(alice, request)->state, FutureSnapshot::State::kReady);
  }
}

TEST_F(StoredResults, WhatIsDroppedLeavesTheStore) {
  config().limits.future_bytes_max = 16'000;
  boot();
  const RequestId first = finished_sample();
  for (int i = 0; i < 50; ++i) finished_sample();
  EXPECT_EQ(wait(alice, first).error().code, ErrorCode::kGone);
  ASSERT_TRUE(durable().ok());
  EXPECT_LE(count("future"), 10U);
  EXPECT_EQ(count("result"), count("future"));
  advance((config().limits.future_retention_seconds + 1) * kSecond);
  ASSERT_TRUE(durable().ok());
  EXPECT_EQ(count("future"), 0U);
  EXPECT_EQ(count("result"), 0U);
}

TEST_F(StoredResults, RestoredResultsCountAgainstTheLimitsUnread) {
  boot();
  const RequestId first = finished_sample();
  for (int i = 0; i < 50; ++i) finished_sample();
  config().limits.future_bytes_per_user_max = 16'000;
  crash_and_boot();
  ASSERT_TRUE(durable().ok());
  EXPECT_EQ(wait(alice, first).error().code, ErrorCode::kGone);
  EXPECT_LE(count("result"), 10U);
  EXPECT_GE(count("result"), 1U);
}

TEST_F(StoredResults, AnUndoneResultLeavesTheStore) {
  const RunId run = boot_with_run();
  const RequestId pass = forward_backward(run, alice, 1);
  value<ProtobufResult>(alice, pass);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(count("result"), 1U);
  crash_and_boot();
  EXPECT_EQ(wait(alice, pass).error().code, ErrorCode::kGone);
  ASSERT_TRUE(durable().ok());
  EXPECT_EQ(count("result"), 0U);
}

// The checkpoints of a run outlive the records of its operations, and their numbers stay unique.
TEST_F(StoredResults, NumbersGoOnAfterTheRecordsAreDropped) {
  config().limits.session_idle_seconds = 1'000'000;
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "one"));
  const auto number_of = [&](const std::string& name) {
    std::ifstream file(folder(run) / name / "metadata.json");
    return nlohmann::json::parse(file).at("future_id").get<uint64_t>();
  };
  const uint64_t first = number_of("one");
  advance((config().limits.future_retention_seconds + 1) * kSecond);
  ASSERT_TRUE(durable().ok());
  ASSERT_EQ(count("future"), 0U);
  crash_and_boot();
  value<SaveWeightsResult>(alice, save(run, alice, 2, "two"));
  EXPECT_GT(number_of("two"), first);
}

// persistence/tests/recordings/README.md says how the state was recorded.
TEST_F(StoredResults, TheStateOfAnEarlierVersionIsRestored) {
  std::ifstream file("src/control/persistence/tests/recordings/state_1.jsonl");
  ASSERT_TRUE(file.good());
  std::vector<RequestId> samples, passes;
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line);
    const auto text = entry.at("value").get<std::string>();
    contents().put(entry.at("key").get<std::string>(), text);
    const auto record = nlohmann::json::parse(text);
    if (!record.contains("operation_type") || record.at("status") != "ready") continue;
    const auto type = record.at("operation_type").get<std::string>();
    if (type == "sample") samples.emplace_back(record.at("request_id").get<std::string>());
    if (type == "forward") passes.emplace_back(record.at("request_id").get<std::string>());
  }
  ASSERT_EQ(samples.size(), 1U);
  ASSERT_EQ(passes.size(), 1U);
  config().limits.session_idle_seconds = 1'000'000;
  boot();
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, samples[0]).bytes), -1);  // of the base model
  EXPECT_FALSE(value<ProtobufResult>(alice, passes[0]).bytes.empty());
  EXPECT_EQ(plane().catalog().sessions(alice, {}).total, 1);
  EXPECT_EQ(plane().catalog().training_runs(alice, {}, "").total, 1);
  // They are dropped like the others.
  advance((config().limits.future_retention_seconds + 1) * kSecond);
  ASSERT_TRUE(durable().ok());
  EXPECT_EQ(count("future"), 0U);
}

}  // namespace
}  // namespace tuft::control
