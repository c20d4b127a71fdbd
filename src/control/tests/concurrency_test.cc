// Many threads at the same time: clients, an actor that answers on its own threads, sweeps and restarts.
#include <atomic>
#include <thread>

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

}  // namespace
}  // namespace tuft::control
