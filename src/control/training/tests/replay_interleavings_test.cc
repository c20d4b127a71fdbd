// Tests of moments in which a lost worker, a broken connection or a restart of the server meets an operation.
#include "bucket/testing/fake_s3.h"
#include "control/training/run_journal.h"
#include "control/training/tests/replay_fixture.h"

namespace tuft::control {
namespace {

// The only worker that is there is away for longer than a run waits, while it saves.
class ReplayOfASave : public ReplayJoined {
 protected:
  RunId boot_with_step() {
    const RunId run = boot_with_run();
    step(run);
    other(home(run)).die();
    return run;
  }
  template <typename Submit>
  RequestId save_while_away(const RunId& run, Submit submit) {
    FakeActor& from = home(run);
    from.hold_answers(true);
    const RequestId saved = submit();
    sweep_until([&] { return from.held() == 1; });
    from.disconnect();
    from.hold_answers(false);
    let_last(3 * kSecond);
    EXPECT_TRUE(pending(alice, saved));
    from.start();
    return saved;
  }
  void save_and_lose_the_worker() {
    const RunId run = boot_with_step();
    value<SaveWeightsResult>(alice, save_while_away(run, [&] { return save(run, alice, next(), "s"); }));
    FakeActor& from = home(run);
    EXPECT_EQ(from.weights_of(run.str()), 1);
    from.restart();
    step(run);
    EXPECT_EQ(from.weights_of(run.str()), 2);
  }
};

TEST_F(ReplayOfASave, ItIsMadeWhenTheWorkerComesBack) {
  save_and_lose_the_worker();
}

TEST_F(ReplayOfASave, ThatOfASamplerToo) {
  const RunId run = boot_with_step();
  value<SaveWeightsForSamplerResult>(alice,
                                     save_while_away(run, [&] { return save_for_sampler(run, alice, next(), "s"); }));
}

class ReplayOfASaveInABucket : public ReplayOfASave {
 protected:
  ReplayOfASaveInABucket() { keep_in_bucket(server_.settings()); }
  ~ReplayOfASaveInABucket() override { close(); }

 private:
  bucket::FakeS3 server_;
};

TEST_F(ReplayOfASaveInABucket, ItsFilesAreThere) {
  save_and_lose_the_worker();
}

TEST_F(Replay, ARunIsRestoredAfterTheCommitOfItsSave) {
  const RunId run = boot_with_run();
  for (int i = 0; i < 50; ++i) {
    value<SaveWeightsResult>(alice, save(run, alice, next(), "first", true));
    for (int k = 0; k < 3; ++k) step(run);
    const int expected = worker().weights_of(run.str());
    worker().hold_answers(true);
    const RequestId saved = save(run, alice, next(), "second", true);
    sweep_until([&] { return worker().held() == 1; });
    worker().before_next("load_state", [&] { (void)wait(alice, saved); });
    worker().hold_answers(false);
    worker().answer_next();
    worker().die();
    worker().start();
    value<SaveWeightsResult>(alice, saved);
    sweep_until([&] { return worker().weights_of(run.str()) == expected; });
    step(run);
    ASSERT_EQ(worker().weights_of(run.str()), expected + 1) << "try " << i;
  }
}

TEST_F(Replay, WhoWasToldOfAFailureIsToldOfALaterLoss) {
  const RunId run = boot_with_run();
  step(run);
  step(run);
  const RequestId deadly = lose_worker_with([&] { return forward_backward(run, alice, next()); });
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
  shorten_journals();
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const auto steps = submit_steps(run, 8);
  const RequestId saved = save(run, alice, next(), "mine");
  worker().stop_holding();
  for (const RequestId& one : steps) value<OptimStepResult>(alice, one);
  value<SaveWeightsResult>(alice, saved);
  EXPECT_EQ(worker().calls_of("save_state").size(), 2U);
  EXPECT_EQ(worker().weights_of(run.str()), 8);
  crash_and_restore(run);
  EXPECT_EQ(worker().weights_of(run.str()), 8);
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 9);
}

TEST_F(Replay, ALaterLoadOfTheClientCountsAfterARestart) {
  keep_state();
  shorten_journals();
  const RunId run = boot_with_run();
  const auto first = value<SaveWeightsResult>(alice, save(run, alice, next(), "zero"));
  worker().hold_answers(true);
  const auto steps = submit_steps(run, 8);
  const RequestId loaded = load(run, alice, next(), first.path);
  worker().stop_holding();
  for (const RequestId& one : steps) value<OptimStepResult>(alice, one);
  value<LoadWeightsResult>(alice, loaded);
  EXPECT_EQ(worker().weights_of(run.str()), 0);
  crash_and_restore(run);
  step(run);
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
    if (!pending(bob, deadly)) deadly = forward_backward(bobs, bob, ++seq);
  }
  worker().hold_answers(false);
  worker().start();
  EXPECT_EQ(worker().weights_of(run.str()), 1);
  step(run);
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
  value<ProtobufResult>(alice, second);
  value<OptimStepResult>(alice, stepped);
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
  EXPECT_EQ(failure(alice, saved).code, ErrorCode::kUnavailable) << "there is nothing of the step any more";
}

TEST_F(Replay, WhatCameAfterASaveOfTheServerIsUndoneByARestart) {
  keep_state();
  shorten_journals();
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const auto steps = submit_steps(run, 8);
  worker().stop_holding();
  for (const RequestId& one : steps) value<OptimStepResult>(alice, one);
  EXPECT_EQ(worker().weights_of(run.str()), 8);
  crash_and_restore(run);
  EXPECT_EQ(worker().weights_of(run.str()), 6);
  for (const size_t undone : {6, 7}) EXPECT_EQ(wait(alice, steps[undone]).error().code, ErrorCode::kGone);
  for (size_t kept = 0; kept < 6; ++kept) value<OptimStepResult>(alice, steps[kept]);
}

TEST_F(Replay, ASaveOfTheServerDoesNotCountBesideThatOfTheClient) {
  config().limits.checkpoints_per_user_max = 1;
  shorten_journals();
  const RunId run = boot_with_run();
  for (int i = 0; i < 8; ++i) step(run);
  value<SaveWeightsResult>(alice, save(run, alice, next(), "mine"));
  const auto listed = [&] { return plane().catalog().checkpoints_of(alice, run, {0, 10}, Listed::kAll)->items.size(); };
  sweep_until([&] { return listed() == 1; });
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
  shorten_journals();
  const RunId run = boot_with_run();
  for (int i = 0; i < 10; ++i) step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 10);
  crash_and_restore(run);
  EXPECT_EQ(failure(alice, optim_step(run, alice, next())).reason, "weights_rolled_back");
}

TEST_F(ReplayJoined, ATakeoverThatGoesBackToASaveOfTheServerIsTold) {
  keep_state();
  config().supported_models[0].workers = 1;
  shorten_journals();
  const RunId run = boot_with_run();
  for (int i = 0; i < 10; ++i) step(run);
  EXPECT_TRUE(durable().ok());
  crash();
  boot();
  sweep_until([&] { return worker().weights_of(run.str()) >= 0; });
  EXPECT_EQ(failure(alice, optim_step(run, alice, next())).reason, "weights_rolled_back");
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
  crash_and_restore(run);
  EXPECT_EQ(failure(alice, optim_step(run, alice, next())).reason, "weights_rolled_back");
}

}  // namespace
}  // namespace tuft::control
