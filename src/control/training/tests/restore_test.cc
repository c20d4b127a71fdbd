// Tests of a restart of the server: what is restored, what is lost, and what clients are told.
#include <chrono>
#include <fstream>

#include "control/tests/plane.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::control {
namespace {

class Restore : public PlaneTest {
 protected:
  Restore() { keep_state(); }

  // Returns the error of a poll that gets no snapshot.
  Error poll_error(const RequestId& request) {
    const auto snapshot = wait(alice, request);
    return snapshot.ok() ? internal_error("there is a snapshot") : snapshot.error();
  }
};

TEST_F(Restore, SessionsRunsSamplersAndResultsAreRestored) {
  const SessionId s = boot_with_session();
  const RequestId create = submit_create(s, alice);
  const RunId run = value<CreateModelResult>(alice, create).run;
  const RequestId pass = forward_backward(run, alice, 1);
  const std::string bytes = value<ProtobufResult>(alice, pass).bytes;
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  const RequestId saved = save(run, alice, 3, "one");
  const std::string path = value<SaveWeightsResult>(alice, saved).path;
  const SamplerId base = *try_sampler(s, alice, 5, model);
  const SamplerId frozen = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 4, "", 0)).sampler;
  const RequestId sampled = sample(frozen, alice, 1);
  value<ProtobufResult>(alice, sampled);
  crash_and_boot();
  EXPECT_TRUE(plane().heartbeat(alice, s).ok());
  EXPECT_EQ(value<CreateModelResult>(alice, create).run, run);
  EXPECT_EQ(value<ProtobufResult>(alice, pass).bytes, bytes);
  EXPECT_EQ(value<SaveWeightsResult>(alice, saved).path, path);
  value<ProtobufResult>(alice, sampled);
  EXPECT_EQ(worker().weights_of(run.str()), 1);
  EXPECT_EQ(worker().calls_of("load_state"), std::vector<std::string>{"load_state " + run.str() + " +optimizer"});
  EXPECT_EQ(worker().last_create().spec().seed(), 7U);
  // Nothing was lost: the next seq_id runs, without a warning.
  value<OptimStepResult>(alice, optim_step(run, alice, 5));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, sample(frozen, alice, 2)).bytes), 1);
  value<ProtobufResult>(alice, sample(base, alice, 1));
}

// The record of a run is written after each operation, also after one that was refused.
TEST_F(Restore, LongMetadataOfARunIsWrittenOnce) {
  CreateModel request = create_request(boot_with_session());
  request.user_metadata["note"] = std::string(60'000, '\x01');  // six bytes of JSON for each
  const auto created = plane().create_model(alice, request, no_trace);
  ASSERT_TRUE(created.ok()) << created.error().message;
  const RunId run = value<CreateModelResult>(alice, created->request).run;
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_TRUE(durable().ok());
  const auto stored = [&](const std::string& kind) {
    const auto records = contents().copy();
    const auto found = records.find("persistence-tuft-server::" + kind + "::" + run.str());
    return found == records.end() ? size_t{0} : found->second.size();
  };
  EXPECT_GT(stored("training_run"), 0U);
  EXPECT_LT(stored("training_run"), 4'000U);
  EXPECT_GT(stored("run_metadata"), 360'000U);
  // The first restart writes the record of the run, and the second one reads what it wrote.
  for (int i = 0; i < 2; ++i) {
    crash_and_boot();
    ASSERT_TRUE(durable().ok());
    const auto found = plane().catalog().training_run(alice, run, Scope::kOwned);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->user_metadata, request.user_metadata);
  }
  const auto unloaded = plane().unload_model(alice, run, no_trace);
  ASSERT_TRUE(unloaded.ok()) << unloaded.error().message;
  value<UnloadModelResult>(alice, unloaded->request);
  ASSERT_TRUE(durable().ok());
  EXPECT_EQ(stored("training_run"), 0U);
  EXPECT_EQ(stored("run_metadata"), 0U);
}

// An operator who restarts a server with many runs gets one warning.
TEST_F(Restore, TheRunsOfARestartAreOneWarning) {
  telemetry::WithCollector collector;
  const SessionId s = boot_with_session();
  for (int64_t seq = 0; seq < 3; ++seq) {
    const RunId run = create_model(s, alice, seq);
    if (seq > 0) value<OptimStepResult>(alice, optim_step(run, alice, 1));
  }
  ASSERT_TRUE(durable().ok());
  crash();
  boot(false);
  worker().hold_answers(true);
  worker().start();
  worker().stop_holding();
  ASSERT_TRUE(collector.flush());
  int warnings = 0;
  for (const auto& log : collector.receiver.logs()) warnings += log.severity == "WARN" ? 1 : 0;
  EXPECT_EQ(warnings, 1);
  const auto log = collector.log("models.restored");
  ASSERT_TRUE(log.has_value());
  EXPECT_EQ(telemetry::testing::text_of(log->attributes, "tuft.runs"), "3");
  EXPECT_EQ(telemetry::testing::text_of(log->attributes, "tuft.runs_rolled_back"), "2");
}

TEST_F(Restore, ARepeatedSubmissionGetsTheFirstResult) {
  const SessionId s = boot_with_session();
  const RequestId create = submit_create(s, alice);
  const RunId run = value<CreateModelResult>(alice, create).run;
  const RequestId step = optim_step(run, alice, 1);
  value<OptimStepResult>(alice, step);
  value<SaveWeightsResult>(alice, save(run, alice, 2, "one"));
  const SamplerId sampler = *try_sampler(s, alice, 0, model);
  const RequestId sampled = sample(sampler, alice, 1);
  value<ProtobufResult>(alice, sampled);
  crash_and_boot();
  EXPECT_EQ(submit_create(s, alice), create);
  EXPECT_EQ(optim_step(run, alice, 1), step);
  EXPECT_EQ(sample(sampler, alice, 1), sampled);
  EXPECT_EQ(*try_sampler(s, alice, 0, model), sampler);
  EXPECT_EQ(worker().weights_of(run.str()), 1);
  EXPECT_TRUE(worker().calls_of("optim_step").empty());
}

TEST_F(Restore, OperationsAfterTheCheckpointAreGoneAndTheErrorSaysWhatToDo) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const std::string path = value<SaveWeightsResult>(alice, save(run, alice, 2, "one")).path;
  const RequestId lost = optim_step(run, alice, 3);
  value<OptimStepResult>(alice, lost);
  worker().hold_answers(true);
  const RequestId pending = forward_backward(run, alice, 4);
  const RequestId queued = optim_step(run, alice, 5);
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  for (const RequestId& request : {lost, pending, queued}) {
    const Error error = poll_error(request);
    EXPECT_EQ(error.code, ErrorCode::kGone) << error.message;
    EXPECT_NE(error.message.find(path), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("seq_id 2"), std::string::npos) << error.message;
  }
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

// No checkpoint holds gradients, so the save does not make this one durable. The numbers alone cannot tell whether the
// client knows of it.
TEST_F(Restore, AGradientThatWasPendingAtTheSaveIsNotLostInSilence) {
  for (const bool stops : {true, false}) {
    const RunId run = boot_with_run();
    value<ProtobufResult>(alice, forward_backward(run, alice, 1));
    const std::string path = value<SaveWeightsResult>(alice, save(run, alice, 2, "one")).path;
    if (stops) close();
    stops ? boot() : crash_and_boot();
    const Error error = failure(alice, optim_step(run, alice, 3));
    EXPECT_EQ(error.reason, "weights_rolled_back");
    EXPECT_NE(error.message.find(path), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("without the gradient"), std::string::npos) << error.message;
    // It was told, so the next restart has nothing to add.
    crash_and_boot();
    value<ProtobufResult>(alice, forward_backward(run, alice, 4));
    value<OptimStepResult>(alice, optim_step(run, alice, 5));
  }
}

TEST_F(Restore, AClientThatGoesBackIsToldOfAGradientThatTheCheckpointLacks) {
  const RunId run = boot_with_run();
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  value<SaveWeightsResult>(alice, save(run, alice, 2, "one"));
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  crash_and_boot();
  EXPECT_EQ(failure(alice, optim_step(run, alice, 3)).reason, "weights_rolled_back");
  value<ProtobufResult>(alice, forward_backward(run, alice, 4));
}

// The SDK cannot reuse seq_ids: it is told of the loss once, then its operations run.
TEST_F(Restore, AClientThatGoesOnIsToldOfTheLossOnce) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "one"));
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  crash_and_boot();
  const Error error = failure(alice, optim_step(run, alice, 4));
  EXPECT_EQ(error.reason, "weights_rolled_back");
  EXPECT_NE(error.message.find("the server was restarted"), std::string::npos) << error.message;
  value<OptimStepResult>(alice, optim_step(run, alice, 5));
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Restore, ALoadAfterALossNeedsNoWarning) {
  const RunId run = boot_with_run();
  const auto path = value<SaveWeightsResult>(alice, save(run, alice, 1, "one")).path;
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  crash_and_boot();
  value<LoadWeightsResult>(alice, load(run, alice, 3, path));
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
}

TEST_F(Restore, AClientThatGoesBackReusesTheSeqIds) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "one"));
  const RequestId first = optim_step(run, alice, 2);
  value<OptimStepResult>(alice, first);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  crash_and_boot();
  const RequestId again = optim_step(run, alice, 2);
  EXPECT_NE(again, first);
  value<OptimStepResult>(alice, again);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Restore, ASecondRestartDoesNotRestoreWhatTheFirstUndid) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "one"));
  const RequestId undone = optim_step(run, alice, 2);
  value<OptimStepResult>(alice, undone);
  crash_and_boot();
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  value<SaveWeightsResult>(alice, save(run, alice, 4, "two"));
  crash_and_boot();
  EXPECT_EQ(poll_error(undone).code, ErrorCode::kGone);
  value<OptimStepResult>(alice, optim_step(run, alice, 5));
  EXPECT_EQ(worker().weights_of(run.str()), 3);
}

TEST_F(Restore, ARunWithoutACheckpointStartsFromItsFirstState) {
  const SessionId s = boot_with_session();
  const RequestId create = submit_create(s, alice);
  const RunId run = value<CreateModelResult>(alice, create).run;
  const RequestId step = optim_step(run, alice, 1);
  value<OptimStepResult>(alice, step);
  crash_and_boot();
  EXPECT_EQ(value<CreateModelResult>(alice, create).run, run);
  EXPECT_NE(poll_error(step).message.find("first state"), std::string::npos);
  EXPECT_EQ(failure(alice, optim_step(run, alice, 2)).reason, "weights_rolled_back");
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
}

TEST_F(Restore, ATornCheckpointIsPassedOverForTheNewestWholeOne) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  const auto whole = value<SaveWeightsResult>(alice, save(run, alice, 2, "whole")).path;
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  value<SaveWeightsResult>(alice, save(run, alice, 4, "torn"));
  close();
  std::ofstream(folder(run) / "torn" / "metadata.json") << "{";
  boot();
  const Error error = failure(alice, optim_step(run, alice, 5));
  EXPECT_EQ(error.reason, "weights_rolled_back");
  EXPECT_NE(error.message.find(whole), std::string::npos) << error.message;
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Restore, WithOnlyATornCheckpointAModelIsRefusedAtEveryStart) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  const auto torn = value<SaveWeightsResult>(alice, save(run, alice, 2, "torn")).path;
  const auto sampler = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 3, "other")).path;
  close();
  std::ofstream(folder(run) / "torn" / "metadata.json") << "{";
  for (const int64_t seq : {4, 5, 6}) {
    boot();
    const Error error = failure(alice, optim_step(run, alice, seq));
    EXPECT_EQ(error.reason, "model_lost");
    EXPECT_NE(error.message.find(torn), std::string::npos) << error.message;
    ASSERT_TRUE(durable().ok());
  }
  value<LoadWeightsResult>(alice, load(run, alice, 7, sampler, false));
  value<OptimStepResult>(alice, optim_step(run, alice, 8));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Restore, ARunOfAModelThatTrainsNoMoreCanOnlySave) {
  const RunId run = boot_with_run();
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  value<SaveWeightsResult>(alice, save(run, alice, 3, "one"));
  config().supported_models[0].training = false;
  crash_and_boot();
  EXPECT_EQ(failure(alice, forward_backward(run, alice, 4)).reason, "training_disabled");
  EXPECT_EQ(failure(alice, optim_step(run, alice, 5)).reason, "training_disabled");
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 6, "kept"));
  EXPECT_TRUE(worker().calls_of("forward_backward").empty());
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Restore, ASamplerOfAModelThatSamplesNoMoreIsRefused) {
  const SessionId s = boot_with_session();
  const SamplerId sampler = *try_sampler(s, alice, 0, model);
  value<ProtobufResult>(alice, sample(sampler, alice));
  config().supported_models[0].sampling = false;
  crash_and_boot();
  const auto refused = plane().sample(alice, sample_request(sampler), no_trace);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "sampling_disabled");
  EXPECT_TRUE(worker().calls_of("sample").empty());
}

TEST_F(Restore, PendingSamplesAndCreationsAreGoneAndCanBeRepeated) {
  const SessionId s = boot_with_session();
  const SamplerId sampler = *try_sampler(s, alice, 0, model);
  worker().hold_answers(true);
  const RequestId create = submit_create(s, alice);
  const RequestId sampling = sample(sampler, alice, 1);
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(poll_error(create).code, ErrorCode::kGone);
  EXPECT_EQ(poll_error(sampling).code, ErrorCode::kGone);
  create_model(s, alice);
  value<ProtobufResult>(alice, sample(sampler, alice, 1));
}

TEST_F(Restore, AnUnloadedRunIsNotRestored) {
  const RunId run = boot_with_run();
  value<UnloadModelResult>(alice, plane().unload_model(alice, run, no_trace)->request);
  crash_and_boot();
  EXPECT_EQ(plane().get_info(alice, run).error().code, ErrorCode::kNotFound);
}

TEST_F(Restore, ASamplerWhoseCheckpointWasReplacedIsGone) {
  const auto [s, run] = boot_with_session_and_run();
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "x")).path;
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 3, "x"));
  crash_and_boot();
  // Its files ended with the old process; the files that have the name now are other weights.
  EXPECT_EQ(plane().get_sampler(alice, sampler).error().code, ErrorCode::kNotFound);
}

TEST_F(Restore, TenantsStayApart) {
  const RunId run = boot_with_run();
  const RequestId step = optim_step(run, alice, 1);
  value<OptimStepResult>(alice, step);
  crash_and_boot();
  EXPECT_EQ(plane().get_info(bob, run).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(wait(bob, step).error().code, ErrorCode::kNotFound);
}

TEST_F(Restore, NothingIsDeliveredBeforeItIsDurable) {
  const RunId run = boot_with_run();
  ASSERT_TRUE(durable().ok());
  contents().hold(true);
  const RequestId step = optim_step(run, alice, 1);
  EXPECT_EQ(worker().weights_of(run.str()), 1);
  EXPECT_TRUE(pending(alice, step));
  contents().hold(false);
  value<OptimStepResult>(alice, step);
}

TEST_F(Restore, WhileTheStoreIsUnavailableRequestsAreRefusedAndNothingIsLost) {
  const auto [s, run] = boot_with_session_and_run();
  contents().set_reachable(false);
  const RequestId step = optim_step(run, alice, 1);
  EXPECT_EQ(durable().error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(plane().ready());
  EXPECT_TRUE(pending(alice, step));
  for (const Error& error : {plane().optim_step(alice, {run, 2}, no_trace).error(),
                             plane().create_session(alice, {}).error(), try_sampler(s, alice, 0, model).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    EXPECT_EQ(error.reason, "store_unavailable");
  }
  // A repeated submission finds the first one, although its answer was not durable.
  EXPECT_EQ(optim_step(run, alice, 1), step);
  contents().set_reachable(true);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!plane().ready() && std::chrono::steady_clock::now() < end) plane().sweep();
  value<OptimStepResult>(alice, step);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  crash_and_boot();
  EXPECT_EQ(poll_error(step).code, ErrorCode::kGone);
}

TEST_F(Restore, ANormalStopKeepsEverything) {
  const RunId run = boot_with_run();
  const RequestId step = optim_step(run, alice, 1);
  value<OptimStepResult>(alice, step);
  const RequestId saved = save(run, alice, 2, "one");
  value<SaveWeightsResult>(alice, saved);
  close();
  boot();
  value<OptimStepResult>(alice, step);
  value<SaveWeightsResult>(alice, saved);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

// The id of a run is made of its session and its number.
TEST_F(Restore, TheNumberOfAnUnloadedRunIsRefusedWhileItsResultsOrCheckpointsAreThere) {
  config().limits.future_retention_seconds = 120;
  const SessionId s = boot_with_session();
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; i += 20) {
      advance(20 * kSecond);
      ASSERT_TRUE(plane().heartbeat(alice, s).ok());
    }
  };
  const auto refusal = [&](int64_t number) {
    const auto created = plane().create_model(alice, create_request(s, number), no_trace);
    return created.ok() ? "it was created" : created.error().reason;
  };
  const RunId saved = create_model(s, alice, 0);
  const RunId not_saved = create_model(s, alice, 1);
  pass(100);
  const RequestId step = optim_step(not_saved, alice, 1);
  value<OptimStepResult>(alice, step);
  value<SaveWeightsResult>(alice, save(saved, alice, 1, "one"));
  for (const RunId& run : {saved, not_saved}) {
    value<UnloadModelResult>(alice, plane().unload_model(alice, run, no_trace)->request);
  }
  pass(60);
  for (const bool restarted : {false, true}) {
    if (restarted) {
      ASSERT_TRUE(durable().ok());
      crash_and_boot();
    }
    EXPECT_EQ(refusal(0), "model_seq_id_used");
    EXPECT_EQ(refusal(1), "model_seq_id_used");
  }
  value<OptimStepResult>(alice, step);
  pass(140);
  EXPECT_EQ(refusal(0), "model_seq_id_used");
  ASSERT_EQ(create_model(s, alice, 1), not_saved);
  const RequestId again = optim_step(not_saved, alice, 1);
  EXPECT_NE(again, step);
  value<OptimStepResult>(alice, again);
}

}  // namespace
}  // namespace tuft::control
