// Many threads at the same time: clients, an actor that answers on its own threads, sweeps and restarts.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/testing/temp_dir.h"
#include "control/tests/fake_model_config.h"
#include "control/tests/plane.h"

namespace tuft::control {
namespace {

class Concurrency : public PlaneTest {};

TEST_F(Concurrency, OrderHoldsForEveryRunWhoeverSubmits) {
  constexpr int kRuns = 4;
  constexpr int kOperations = 200;
  const SessionId s = boot_with_session();
  std::vector<RunId> runs;
  for (int i = 0; i < kRuns; ++i) runs.push_back(create_model(s, alice, i));
  worker().clear_calls();
  worker().hold_answers(true);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        if (!worker().answer_next()) std::this_thread::yield();
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop) {
      plane().sweep();
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  for (int part = 0; part < 4; ++part) {
    clients.emplace_back([&, part] {
      // Two clients send each number, from the end of a window to its begin and back.
      for (int i = 0; i < kOperations; ++i) {
        for (const RunId& run : runs) {
          const int number = part % 2 == 0 ? i + 1 : (i / 10) * 10 + 10 - i % 10;
          const RequestId request = forward_backward(run, alice, number, std::to_string(number));
          if (i % 16 == 0) plane().wait_future(alice, request, [](const Result<FutureSnapshot>&) {});
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (const RunId& run : runs) value<ProtobufResult>(alice, forward_backward(run, alice, kOperations, ""));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const RunId& run : runs) {
    const auto calls = worker().calls_of("forward_backward " + run.str());
    ASSERT_EQ(calls.size(), static_cast<size_t>(kOperations));
    for (int i = 0; i < kOperations; ++i) {
      ASSERT_EQ(calls[static_cast<size_t>(i)], "forward_backward " + run.str() + " " + std::to_string(i + 1));
    }
  }
}

TEST_F(Concurrency, EveryAcknowledgedOperationEndsAlthoughTheWorkerDiesAgainAndAgain) {
  const SessionId s = boot_with_session();
  const RunId run = create_model(s, alice);
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "n")).path;
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  worker().hold_answers(true);
  std::atomic<bool> stop{false};
  std::thread answers([&] {
    int count = 0;
    while (!stop) {
      if (!worker().answer_next()) std::this_thread::yield();
      if (++count % 500 == 0) {
        worker().restart();
      }
    }
  });
  std::vector<RequestId> requests;
  for (int i = 2; i < 600; ++i) {
    requests.push_back(i % 3 == 0 ? optim_step(run, alice, i) : forward_backward(run, alice, i));
    if (i % 4 == 0) requests.push_back(sample(sampler, alice, i));
    if (i % 50 == 0) requests.push_back(save(run, alice, 0));
  }
  for (const RequestId& request : requests) {
    const auto snapshot = wait(alice, request);
    ASSERT_TRUE(snapshot.ok()) << snapshot.error().message;
    EXPECT_NE(snapshot->state, FutureSnapshot::State::kPending);
  }
  stop = true;
  answers.join();
}

TEST_F(Concurrency, ThePlaneMayEndWhileAnswersCome) {
  for (int round = 0; round < 20; ++round) {
    const RunId run = boot_with_run();
    const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
    worker().hold_answers(true);
    for (int i = 1; i <= 20; ++i) forward_backward(run, alice, i);
    save(run, alice, 21);
    for (int i = 0; i < 20; ++i) sample(sampler, alice, i);
    std::thread answers([&] { worker().answer_all(); });
    close();
    answers.join();
    worker().answer_all();
  }
}

// Stops threads in the midst of a request, where they look at the wall clock.
class GatedClock final : public Clock {
 public:
  // A creation of a model looks first when it makes the run, and again when the run is in the table and its operation
  // is to be admitted. The calling thread runs `action` there, once.
  static void before_admission(std::function<void()> action) {
    looks_ = 0;
    gate_ = std::move(action);
  }
  Nanos monotonic() const override { return kSecond; }
  Nanos wall() const override {
    if (gate_ && ++looks_ == 2) std::exchange(gate_, nullptr)();
    return 1'700'000'000 * kSecond;
  }

 private:
  static inline thread_local int looks_ = 0;
  static inline thread_local std::function<void()> gate_;
};

class EqualCreations : public ::testing::Test {
 protected:
  EqualCreations() {
    config::ServerConfig server = fake_model_config(directory_.path(), "m");
    server.limits.futures_per_user_max = 1;
    plane_ = ControlPlane::create(server, {&fake_}, clock_);
    fake_.start();
    session_ = plane_->create_session(alice_, {}).value();
  }

  Result<Submitted> create(int64_t number) {
    CreateModel request;
    request.session = session_;
    request.model_seq_id = number;
    request.base_model = "m";
    request.lora.rank = 8;
    return plane_->create_model(alice_, request, {});
  }
  // Takes all that the user may have unfinished, until fake_.stop_holding().
  Status fill_limit() {
    TUFT_ASSIGN(const Submitted made, create(0));
    fake_.hold_answers(true);
    OptimStep step;
    step.run = *made.run;
    step.seq_id = 1;
    TUFT_TRY(plane_->optim_step(alice_, step, {}));
    return {};
  }
  FutureSnapshot::State state_of(const Submitted& submitted) {
    auto state = FutureSnapshot::State::kPending;
    plane_->end_wait(plane_->wait_future(alice_, submitted.request, [&](const Result<FutureSnapshot>& snapshot) {
      if (snapshot.ok()) state = snapshot->state;
    }));
    return state;
  }

  const UserId alice_{"alice"};
  const TempDir directory_;
  GatedClock clock_;
  FakeActor fake_{"m"};
  std::unique_ptr<ControlPlane> plane_;
  SessionId session_;
};

// The first one made the run, and closed it under the second one.
TEST_F(EqualCreations, ARefusedOneLeavesTheRunToTheOther) {
  ASSERT_TRUE(fill_limit().ok());
  std::promise<void> second_has_run, first_is_refused;
  Result<Submitted> second = internal_error("not sent");
  std::thread other;
  GatedClock::before_admission([&] {
    other = std::thread([&] {
      GatedClock::before_admission([&] {
        second_has_run.set_value();
        first_is_refused.get_future().wait();
      });
      second = create(1);
    });
    EXPECT_EQ(second_has_run.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  });
  const auto first = create(1);
  ASSERT_TRUE(other.joinable()) << "it was not stopped";
  fake_.stop_holding();  // there is room for the second one
  first_is_refused.set_value();
  other.join();
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code, ErrorCode::kResourceExhausted);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(state_of(*second), FutureSnapshot::State::kReady);
  EXPECT_TRUE(plane_->get_info(alice_, *second->run).ok());
}

TEST_F(EqualCreations, WhatAllRefusedOnesLeftIsClosed) {
  ASSERT_TRUE(fill_limit().ok());
  EXPECT_FALSE(create(1).ok());
  const RunId run(session_.str() + ":train:1");
  EXPECT_FALSE(plane_->get_info(alice_, run).ok());
  fake_.stop_holding();
  const auto again = create(1);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(state_of(*again), FutureSnapshot::State::kReady);
  EXPECT_TRUE(plane_->get_info(alice_, run).ok());
}

}  // namespace
}  // namespace tuft::control
