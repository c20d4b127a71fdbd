// Tests of moments in which a lost worker, a broken connection or a restart of the server meets an operation.
#include "bucket/testing/fake_s3.h"
#include "control/futures/future_store.h"
#include "control/training/run_journal.h"
#include "control/training/tests/replay_fixture.h"

namespace tuft::control {
namespace {

TEST_F(ReplayJoined, ASaveIsMadeWhenTheOnlyWorkerComesBackLate) {
  const RunId run = boot_with_run();
  step(run);
  FakeActor& from = home(run);
  other(from).die();
  from.hold_answers(true);
  const RequestId saved = save(run, alice, next(), "s");
  sweep_until([&] { return from.held() == 1; });
  from.disconnect();
  from.hold_answers(false);
  advance(kMillisecond);
  advance(3 * kSecond);
  EXPECT_TRUE(pending(alice, saved));
  from.start();
  value<SaveWeightsResult>(alice, saved);
  EXPECT_EQ(from.weights_of(run.str()), 1);
  from.restart();
  step(run);
  EXPECT_EQ(from.weights_of(run.str()), 2);
}

TEST_F(ReplayJoined, ASaveForASamplerIsMadeWhenTheOnlyWorkerComesBackLate) {
  const RunId run = boot_with_run();
  step(run);
  FakeActor& from = home(run);
  other(from).die();
  from.hold_answers(true);
  const RequestId saved = save_for_sampler(run, alice, next(), "s");
  sweep_until([&] { return from.held() == 1; });
  from.disconnect();
  from.hold_answers(false);
  advance(kMillisecond);
  advance(3 * kSecond);
  EXPECT_TRUE(pending(alice, saved));
  from.start();
  value<SaveWeightsForSamplerResult>(alice, saved);
}

TEST_F(Replay, ARunIsRestoredAfterTheCommitOfItsSave) {
  const RunId run = boot_with_run();
  int bad = 0;
  int expected = 0;
  for (int i = 0; i < 50 && bad == 0; ++i) {
    value<SaveWeightsResult>(alice, save(run, alice, next(), "first", true));
    for (int k = 0; k < 3; ++k) step(run);
    expected = worker().weights_of(run.str());
    worker().hold_answers(true);
    const RequestId saved = save(run, alice, next(), "second", true);
    sweep_until([&] { return worker().held() == 1; });
    worker().before_next("load_state", [&] { (void)wait(alice, saved); });
    worker().hold_answers(false);
    worker().answer_next();
    worker().die();
    worker().start();
    value<SaveWeightsResult>(alice, saved);
    sweep_until([&] { return worker().weights_of(run.str()) >= 0; });
    if (worker().weights_of(run.str()) != expected) ++bad;
    const auto now = wait(alice, optim_step(run, alice, next()));
    EXPECT_EQ(worker().weights_of(run.str()), expected + 1)
        << "try " << i << " " << (now.ok() ? now->error.reason : "");
  }
}

TEST_F(Replay, WhoWasToldOfAFailureIsToldOfALaterLoss) {
  const RunId run = boot_with_run();
  step(run);
  step(run);
  worker().hold_answers(true);
  const RequestId deadly = forward_backward(run, alice, next());
  worker().die();
  worker().hold_answers(false);
  worker().before_next("forward_backward", [&] { worker().hold_answers(true); });
  worker().start();
  EXPECT_TRUE(pending(alice, deadly));
  worker().die();
  EXPECT_EQ(failure(alice, deadly).reason, "worker_died");
  worker().hold_answers(false);
  worker().before_next("optim_step", [&] { worker().fail_next("optim_step", invalid_argument("no")); });
  worker().start();
  advance(kSecond);
  EXPECT_EQ(failure(alice, optim_step(run, alice, next())).reason, "weights_rolled_back");
  EXPECT_EQ(worker().weights_of(run.str()), 0);
}

TEST_F(ReplayJoined, AnotherServerGoesOnAfterAReplay) {
  keep_state();
  config().supported_models[0].workers = 1;
  const RunId run = boot_with_run();
  step(run);
  step(run);
  worker().restart();
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  EXPECT_TRUE(durable().ok());
  crash_and_come_back();
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 3);
}

TEST_F(Replay, ALaterSaveOfTheClientCountsAfterARestart) {
  keep_state();
  config().limits.journal_bytes_per_user_max = 10 * FutureStore::kOperationBytes;
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  std::vector<RequestId> steps;
  for (int i = 0; i < 8; ++i) steps.push_back(optim_step(run, alice, next()));
  const RequestId saved = save(run, alice, next(), "mine");
  worker().stop_holding();
  for (const RequestId& one : steps) value<OptimStepResult>(alice, one);
  value<SaveWeightsResult>(alice, saved);
  EXPECT_EQ(worker().calls_of("save_state").size(), 2U);
  EXPECT_EQ(worker().weights_of(run.str()), 8);
  EXPECT_TRUE(durable().ok());
  crash_and_boot();
  sweep_until([&] { return worker().weights_of(run.str()) >= 0; });
  EXPECT_EQ(worker().weights_of(run.str()), 8);
  const auto after = wait(alice, optim_step(run, alice, next()));
  EXPECT_EQ(after->error.reason, "");
  EXPECT_EQ(worker().weights_of(run.str()), 9);
}

TEST_F(Replay, ALaterLoadOfTheClientCountsAfterARestart) {
  keep_state();
  config().limits.journal_bytes_per_user_max = 10 * FutureStore::kOperationBytes;
  const RunId run = boot_with_run();
  const auto first = value<SaveWeightsResult>(alice, save(run, alice, next(), "zero"));
  worker().hold_answers(true);
  std::vector<RequestId> steps;
  for (int i = 0; i < 8; ++i) steps.push_back(optim_step(run, alice, next()));
  const RequestId loaded = load(run, alice, next(), first.path);
  worker().stop_holding();
  for (const RequestId& one : steps) value<OptimStepResult>(alice, one);
  value<LoadWeightsResult>(alice, loaded);
  EXPECT_EQ(worker().weights_of(run.str()), 0);
  EXPECT_TRUE(durable().ok());
  crash_and_boot();
  sweep_until([&] { return worker().weights_of(run.str()) >= 0; });
  const auto after = wait(alice, optim_step(run, alice, next()));
  EXPECT_EQ(after->error.reason, "");
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Replay, RequestsOfAnotherUserThatEndTheWorkerDoNotCostTheJournal) {
  const RunId run = boot_with_run();
  step(run);
  const RunId bobs = create_model(bob);
  worker().hold_answers(true);
  int32_t seq = 0;
  RequestId deadly = forward_backward(bobs, bob, ++seq);
  worker().die();
  for (int life = 0; life < RunJournal::kTriesMax - 1; ++life) {
    worker().start();
    EXPECT_TRUE(worker().answer_next());
    EXPECT_TRUE(worker().answer_next());
    EXPECT_EQ(worker().held(), 2U);  // alice's replay and bob's pass
    worker().die();
    if (!pending(bob, deadly)) {
      deadly = forward_backward(bobs, bob, ++seq);
    }
  }
  worker().hold_answers(false);
  worker().start();
  EXPECT_EQ(worker().weights_of(run.str()), 1);
  EXPECT_EQ(wait(alice, optim_step(run, alice, next()))->error.reason, "");
}

TEST_F(Replay, ALongReplayIsWaitedFor) {
  const RunId run = boot_with_run();
  step(run);
  worker().hold_answers(true);
  const RequestId first = forward_backward(run, alice, next());
  worker().die();
  worker().start();                     // at once
  EXPECT_TRUE(worker().answer_next());  // create_adapter
  advance(kSecond);
  const RequestId second = forward_backward(run, alice, next());
  const RequestId stepped = optim_step(run, alice, next());
  for (int i = 0; i < 60; ++i) advance(kSecond);
  EXPECT_TRUE(pending(alice, first)) << failure(alice, first).message;
  worker().stop_holding();
  worker().clear_calls();
  value<ProtobufResult>(alice, first);
  std::printf("second %d stepped %d\n", static_cast<int>(wait(alice, second)->state),
              static_cast<int>(wait(alice, stepped)->state));
}

TEST_F(Replay, AStepIsNotMadeTwiceWhenOnlyTheConnectionBreaks) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId stepped = optim_step(run, alice, next());
  worker().lose_connection();
  (void)wait(alice, stepped);
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(ReplayJoined, ASaveDoesNotSaveWhatTheRunWentBackTo) {
  config().supported_models[0].replicate = false;
  config().supported_models[0].workers = 1;
  const RunId run = boot_with_run();
  worker().set_joined(true);
  value<SaveWeightsResult>(alice, save(run, alice, next(), "first"));
  step(run);
  worker().before_next("save_state", [&] {
    worker().die();
    worker().start();
  });
  const RequestId saved = save(run, alice, next(), "second");
  sweep_until([&] { return !pending(alice, saved); });
  const auto result = wait(alice, saved);
  EXPECT_NE(static_cast<int>(result->state), static_cast<int>(FutureSnapshot::State::kReady))
      << "it saved " << worker().weights_of(run.str()) << " instead of 1";
}

TEST_F(Replay, WhatCameAfterASaveOfTheServerIsUndoneByARestart) {
  keep_state();
  config().limits.journal_bytes_per_user_max = 10 * FutureStore::kOperationBytes;
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  std::vector<RequestId> steps;
  for (int i = 0; i < 8; ++i) steps.push_back(optim_step(run, alice, next()));
  worker().stop_holding();
  for (const RequestId& one : steps) value<OptimStepResult>(alice, one);
  EXPECT_EQ(worker().weights_of(run.str()), 8);
  EXPECT_TRUE(durable().ok());
  crash_and_boot();
  sweep_until([&] { return worker().weights_of(run.str()) >= 0; });
  EXPECT_EQ(worker().weights_of(run.str()), 6);
  for (const size_t undone : {6, 7}) EXPECT_EQ(wait(alice, steps[undone]).error().code, ErrorCode::kGone);
  for (size_t kept = 0; kept < 6; ++kept) value<OptimStepResult>(alice, steps[kept]);
}

TEST_F(Replay, ASaveOfTheServerDoesNotCountBesideThatOfTheClient) {
  config().limits.checkpoints_per_user_max = 1;
  config().limits.journal_bytes_per_user_max = 10 * FutureStore::kOperationBytes;
  const RunId run = boot_with_run();
  for (int i = 0; i < 8; ++i) step(run);
  EXPECT_EQ(wait(alice, save(run, alice, next(), "mine"))->error.reason, "");
}

TEST_F(Replay, AReplayWithoutRoomIsTriedAgain) {
  const RunId run = boot_with_run();
  step(run);
  worker().die();
  worker().before_next("optim_step", [&] {
    worker().fail_next("optim_step", Error{ErrorCode::kResourceExhausted, "no memory", "x"});
  });
  worker().start();
  advance(kSecond);
  advance(10 * kSecond);
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Replay, ARestartThatGoesBackToASaveOfTheServerIsTold) {
  keep_state();
  config().limits.journal_bytes_per_user_max = 10 * FutureStore::kOperationBytes;
  const RunId run = boot_with_run();
  for (int i = 0; i < 10; ++i) step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 10);
  EXPECT_TRUE(durable().ok());
  crash_and_boot();
  sweep_until([&] { return worker().weights_of(run.str()) >= 0; });
  const auto after = wait(alice, optim_step(run, alice, next()));
  EXPECT_EQ(after->error.reason, "weights_rolled_back");
}

TEST_F(ReplayJoined, ATakeoverThatGoesBackToASaveOfTheServerIsTold) {
  keep_state();
  config().supported_models[0].workers = 1;
  config().limits.journal_bytes_per_user_max = 10 * FutureStore::kOperationBytes;
  const RunId run = boot_with_run();
  for (int i = 0; i < 10; ++i) step(run);
  EXPECT_TRUE(durable().ok());
  crash();
  boot();
  sweep_until([&] { return worker().weights_of(run.str()) >= 0; });
  const auto after = wait(alice, optim_step(run, alice, next()));
  EXPECT_EQ(after->error.reason, "weights_rolled_back");
}

TEST_F(ReplayJoined, ARestartAfterADrainIsTold) {
  keep_state();
  config().supported_models[0].replicate = false;
  const RunId run = boot_with_run();
  for (int i = 0; i < 3; ++i) step(run);
  FakeActor& from = home(run);
  FakeActor& to = other(from);
  from.drain(60 * kSecond);
  sweep_until([&] { return to.weights_of(run.str()) == 3; });
  step(run);
  step(run);
  EXPECT_TRUE(durable().ok());
  crash_and_boot();
  sweep_until([&] { return worker(0).weights_of(run.str()) >= 0 || worker(1).weights_of(run.str()) >= 0; });
  const auto after = wait(alice, optim_step(run, alice, next()));
  EXPECT_EQ(after->error.reason, "weights_rolled_back");
}

class ReplayBucket : public ReplayJoined {
 protected:
  ReplayBucket() { keep_in_bucket(server_.settings()); }
  ~ReplayBucket() override { close(); }
  bucket::FakeS3 server_;
};

TEST_F(ReplayBucket, ASaveIsMadeWhenTheOnlyWorkerComesBackLate) {
  const RunId run = boot_with_run();
  step(run);
  FakeActor& from = home(run);
  other(from).die();
  from.hold_answers(true);
  const RequestId saved = save(run, alice, next(), "s");
  sweep_until([&] { return from.held() == 1; });
  from.disconnect();
  from.hold_answers(false);
  advance(kMillisecond);
  advance(3 * kSecond);
  EXPECT_TRUE(pending(alice, saved));
  from.start();
  value<SaveWeightsResult>(alice, saved);
  EXPECT_EQ(from.weights_of(run.str()), 1);
  for (const auto& [key, bytes] : server_.objects()) std::printf("object %s %zu\n", key.c_str(), bytes.size());
  from.restart();
  const auto after = wait(alice, optim_step(run, alice, next()));
  EXPECT_EQ(from.weights_of(run.str()), 2);
}

}  // namespace
}  // namespace tuft::control
