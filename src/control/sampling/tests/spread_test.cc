// Tests of sampling from base models with several workers.
#include <functional>

#include "control/sampling/frozen_adapters.h"
#include "control/tests/plane.h"

namespace tuft::control {
namespace {

class Spread : public PlaneTest {
 protected:
  Spread() { config().supported_models[0].workers = 2; }

  size_t samples(size_t number) { return worker(number).calls_of("sample").size(); }
  FakeActor& busier() { return samples(0) >= samples(1) ? worker(0) : worker(1); }
  // A sampling session on a checkpoint that is written.
  SamplerId trained_sampler(const SessionId& own, int weights) {
    const RunId run = create_model(own, alice);
    for (int seq = 1; seq <= weights; ++seq) value<OptimStepResult>(alice, optim_step(run, alice, seq));
    const auto saved =
        value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, weights + 1, "checkpoint"));
    settle();
    const auto sampler = try_sampler(own, alice, 0, "", saved.path.value());
    EXPECT_TRUE(sampler.ok());
    return *sampler;
  }
};

TEST_F(Spread, TheSamplesOfASessionKeepTogether) {
  const SessionId own = boot_with_session();
  const SamplerId sampler = *try_sampler(own, alice, 0, model);
  for (int i = 0; i < 5; ++i) wait(alice, sample(sampler, alice)).value();
  EXPECT_EQ(samples(0) + samples(1), 5U);
  EXPECT_TRUE(samples(0) == 0 || samples(1) == 0);
}

TEST_F(Spread, ManySessionsUseAllWorkers) {
  const SessionId own = boot_with_session();
  for (int seq = 0; seq < 16; ++seq) wait(alice, sample(*try_sampler(own, alice, seq, model), alice)).value();
  EXPECT_GT(samples(0), 0U);
  EXPECT_GT(samples(1), 0U);
}

TEST_F(Spread, ASessionBeginsWhereThereIsLeastToDoAndStaysThere) {
  const SessionId own = boot_with_session();
  worker(0).hold_answers(true);
  worker(1).hold_answers(true);
  std::vector<SamplerId> of_first;
  for (int seq = 0; seq < 16; ++seq) {
    const SamplerId sampler = *try_sampler(own, alice, seq, model);
    const size_t before = samples(0);
    sample(sampler, alice);
    if (samples(0) > before) of_first.push_back(sampler);
  }
  EXPECT_EQ(samples(0), 8U);
  EXPECT_EQ(samples(1), 8U);
  for (const SamplerId& sampler : of_first) sample(sampler, alice);
  EXPECT_EQ(samples(0), 16U) << "they go where they began, though the other one has less to do";
  worker(0).stop_holding();
  worker(1).stop_holding();
}

TEST_F(Spread, TooManySamplesOfASessionGoToAnotherWorker) {
  const SessionId own = boot_with_session();
  const SamplerId sampler = *try_sampler(own, alice, 0, model);
  worker(0).hold_answers(true);
  worker(1).hold_answers(true);
  for (int64_t i = 0; i < kSpread + 2; ++i) sample(sampler, alice);
  EXPECT_EQ(busier().calls_of("sample").size(), static_cast<size_t>(kSpread) + 1);
  EXPECT_EQ(samples(0) + samples(1), static_cast<size_t>(kSpread) + 2);
  worker(0).stop_holding();
  worker(1).stop_holding();
}

TEST_F(Spread, TheWorkerOfASessionDiesThenAnotherGoesOnUntilItIsBack) {
  const SessionId own = boot_with_session();
  const SamplerId sampler = *try_sampler(own, alice, 0, model);
  wait(alice, sample(sampler, alice)).value();
  FakeActor& first = busier();
  FakeActor& second = other(first);
  first.die();
  EXPECT_EQ(wait(alice, sample(sampler, alice))->state, FutureSnapshot::State::kReady);
  EXPECT_EQ(second.calls_of("sample").size(), 1U);
  first.start();
  wait(alice, sample(sampler, alice)).value();
  EXPECT_EQ(first.calls_of("sample").size(), 2U) << "else a restart of one worker after the other leaves all at one";
}

TEST_F(Spread, SessionsThatWaitForTheirAdapterAreCounted) {
  const SessionId own = boot_with_session();
  const RunId run = create_model(own, alice);
  const auto saved = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "checkpoint"));
  settle();
  advance(kUnusedAdapterKept + kSecond);
  ASSERT_EQ(worker(0).samplers() + worker(1).samplers(), 0U);
  const SessionId later = session(alice);
  worker(0).hold_answers(true);
  worker(1).hold_answers(true);
  sample(*try_sampler(later, alice, 1000, model), alice);  // one worker has more to do
  for (int seq = 0; seq < 2 * kSpread; ++seq) {
    sample(*try_sampler(later, alice, seq, "", saved.path.value()), alice);
  }
  EXPECT_EQ(worker(0).calls_of("add_sampler").size(), 1U);
  EXPECT_EQ(worker(1).calls_of("add_sampler").size(), 1U) << "so many wait for the first that it is loaded at both";
  worker(0).stop_holding();
  worker(1).stop_holding();
}

TEST_F(Spread, WeightsAreLoadedIntoAnotherWorkerWhenTheirsIsGone) {
  const SessionId own = boot_with_session();
  const SamplerId sampler = trained_sampler(own, 3);
  wait(alice, sample(sampler, alice)).value();
  FakeActor& first = busier();
  FakeActor& second = other(first);
  EXPECT_EQ(second.samplers(), 0U);
  first.die();
  EXPECT_EQ(wait(alice, sample(sampler, alice))->state, FutureSnapshot::State::kReady);
  EXPECT_EQ(second.samplers(), 1U);
  first.start();
  EXPECT_EQ(first.samplers(), 1U) << "it is loaded again where it was";
}

TEST_F(Spread, ALoadThatFailsBecauseTheBucketIsAwayIsNotTriedAgainAndAgain) {
  const auto [own, run] = boot_with_session_and_run();
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "n")).path;
  settle();
  advance(kUnusedAdapterKept + kSecond);  // the published version has left the worker
  int left = 4;
  std::function<void(FakeActor*)> fail_loads = [&](FakeActor* at) {
    at->before_next("add_sampler", [&, at] {
      if (left-- <= 0) return;
      at->fail_next("add_sampler", unavailable("the bucket does not answer", "bucket_unavailable"));
      fail_loads(at);
    });
  };
  fail_loads(&worker(0));
  fail_loads(&worker(1));
  const SamplerId sampler = *try_sampler(own, alice, 0, "", path);
  EXPECT_EQ(failure(alice, sample(sampler, alice)).reason, "bucket_unavailable");
}

TEST_F(Spread, ASessionThatEndsFreesItsWeightsInAllWorkers) {
  const SessionId own = boot_with_session();
  const SamplerId sampler = trained_sampler(own, 1);
  worker(0).hold_answers(true);
  worker(1).hold_answers(true);
  std::vector<RequestId> requests;
  for (int64_t i = 0; i < 4 * kSpread; ++i) requests.push_back(sample(sampler, alice));
  worker(0).stop_holding();
  worker(1).stop_holding();
  for (const RequestId& request : requests) {
    EXPECT_EQ(wait(alice, request)->state, FutureSnapshot::State::kReady);
  }
  EXPECT_EQ(worker(0).samplers() + worker(1).samplers(), 2U);
  ASSERT_TRUE(plane().end_session(alice, own, {}).ok());
  advance(kSecond);
  EXPECT_EQ(worker(0).samplers() + worker(1).samplers(), 0U);
}

TEST_F(Spread, NoWorkerIsThereThenSamplesWaitForTheFirst) {
  boot(false);
  const SessionId own = session(alice);
  const SamplerId sampler = *try_sampler(own, alice, 0, model);
  const RequestId waits = sample(sampler, alice);
  advance(kSecond);
  EXPECT_TRUE(pending(alice, waits));
  worker(1).start();
  EXPECT_EQ(wait(alice, waits)->state, FutureSnapshot::State::kReady);
  EXPECT_EQ(samples(1), 1U);
}

TEST_F(Spread, AWorkerThatEndsGetsNoSample) {
  const SessionId own = boot_with_session();
  const SamplerId sampler = *try_sampler(own, alice, 0, model);
  wait(alice, sample(sampler, alice)).value();
  FakeActor& first = busier();
  first.drain(20 * kSecond);
  wait(alice, sample(sampler, alice)).value();
  EXPECT_EQ(first.calls_of("sample").size(), 1U);
}

}  // namespace
}  // namespace tuft::control
