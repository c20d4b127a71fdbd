// Tests of saves for samplers, which make a version in the worker's memory first, then its file.
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "control/tests/plane.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::control {
namespace {

class Publishing : public PlaneTest {
 protected:
  SamplerId sampler_of(const RequestId& saved) {
    return value<SaveWeightsForSamplerResult>(alice, saved).sampler.value_or(SamplerId("none"));
  }
  RequestId save_inflight(const RunId& run, int64_t seq, int64_t sampler_seq) {
    const SaveWeightsForSampler request{.run = run,
                                        .seq_id = seq,
                                        .name = {},
                                        .sampling_session_seq_id = sampler_seq,
                                        .ttl_seconds = {},
                                        .inflight = true};
    return plane().save_weights_for_sampler(alice, request, no_trace)->request;
  }
  int sampled(const SamplerId& sampler) {
    return sampled_number(value<ProtobufResult>(alice, sample(sampler, alice)).bytes);
  }
  // Waits until the worker was asked to write the version's file; it holds the call.
  void wait_for_save_call() {
    while (worker().calls_of("save_sampler").empty()) std::this_thread::yield();
  }
  std::set<std::string> files_of(const RunId& run) { return names_in(folder(run, "sampler_weights")); }
};

TEST_F(Publishing, UnnamedSaveIsAnsweredBeforeItsFile) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId saved = save_for_sampler(run, alice, 1, "", 0);
  EXPECT_TRUE(pending(alice, saved));
  ASSERT_TRUE(worker().answer_next());  // publish_adapter
  const SamplerId sampler = sampler_of(saved);
  wait_for_save_call();
  EXPECT_TRUE(files_of(run).empty());
  worker().hold_answers(false);
  EXPECT_EQ(sampled(sampler), 0);
  worker().answer_all();
  settle();
  EXPECT_EQ(files_of(run), std::set<std::string>{"ephemeral-0001"});
  EXPECT_TRUE(worker().calls_of("add_sampler").empty());
}

TEST_F(Publishing, NamedSaveIsAnsweredWithItsFileButSamplersUseTheVersionInMemory) {
  const auto [s, run] = boot_with_session_and_run();
  worker().hold_answers(true);
  const RequestId saved = save_for_sampler(run, alice, 1, "n");
  ASSERT_TRUE(worker().answer_next());
  wait_for_save_call();
  EXPECT_TRUE(pending(alice, saved));
  worker().stop_holding();
  const std::string path = *value<SaveWeightsForSamplerResult>(alice, saved).path;
  EXPECT_EQ(files_of(run), std::set<std::string>{"n"});
  EXPECT_EQ(sampled(*try_sampler(s, alice, 0, "", path)), 0);
  EXPECT_TRUE(worker().calls_of("add_sampler").empty());
}

TEST_F(Publishing, UnnamedSaveWaitsForItsFileWithPersistence) {
  keep_state();
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId saved = save_for_sampler(run, alice, 1, "", 0);
  ASSERT_TRUE(worker().answer_next());
  wait_for_save_call();
  EXPECT_TRUE(pending(alice, saved));
  worker().stop_holding();
  const SamplerId sampler = sampler_of(saved);
  crash_and_boot();
  EXPECT_EQ(sampled(sampler), 0);
}

TEST_F(Publishing, OldVersionLivesWhileASamplerUsesIt) {
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId first = sampler_of(save_for_sampler(run, alice, 1, "", 0));
  optim_step(run, alice, 2);
  const SamplerId second = sampler_of(save_for_sampler(run, alice, 3, "", 1));
  EXPECT_EQ(sampled(first), 0);
  EXPECT_EQ(sampled(second), 1);
  EXPECT_EQ(worker().samplers(), 2U);
  settle();
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  EXPECT_EQ(worker().samplers(), 0U);
  settle();
  EXPECT_TRUE(files_of(run).empty());
}

TEST_F(Publishing, InflightSamplersFollowTheirRunAndSnapshotsDoNot) {
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId snapshot = sampler_of(save_for_sampler(run, alice, 1, "", 0));
  const SamplerId first = sampler_of(save_inflight(run, 2, 1));
  EXPECT_EQ(sampled(first), 0);
  optim_step(run, alice, 3);
  const SamplerId second = sampler_of(save_inflight(run, 4, 2));
  EXPECT_EQ(sampled(first), 1);
  EXPECT_EQ(sampled(second), 1);
  EXPECT_EQ(sampled(snapshot), 0);
  settle();
  EXPECT_EQ(worker().samplers(), 2U);
}

TEST_F(Publishing, TheIdOfARunCanComeAgainWithAnotherBaseModel) {
  keep_state();
  config().limits.future_retention_seconds = 120;
  config::ModelConfig second = config().supported_models[0];
  second.model_name = "second";
  second.workers = 2;
  config().supported_models[0].workers = 3;
  config().supported_models.push_back(second);
  const SessionId s = boot_with_session();
  const RunId run = create_model(s, alice);
  const SamplerId old = sampler_of(save_inflight(run, 1, 1));
  EXPECT_EQ(sampled(old), 0);
  value<UnloadModelResult>(alice, plane().unload_model(alice, run, no_trace)->request);
  for (int i = 0; i < 5; ++i) {
    advance(30 * kSecond);
    ASSERT_TRUE(plane().heartbeat(alice, s).ok());
  }
  CreateModel request = create_request(s);
  request.base_model = "second";
  ASSERT_EQ(value<CreateModelResult>(alice, plane().create_model(alice, request, no_trace)->request).run, run);
  const SamplerId younger = sampler_of(save_inflight(run, 1, 2));
  settle();
  EXPECT_EQ(plane().get_sampler(alice, old)->base_model, model);
  EXPECT_EQ(plane().get_sampler(alice, younger)->base_model, "second");
  EXPECT_EQ(sampled(old), 0);
  EXPECT_EQ(sampled(younger), 0);
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(sampled(younger), 0);
}

// A run keeps the samplers of the newest unnamed saves, and those that its client uses; other runs do not matter.
TEST_F(Publishing, ARunKeepsTheUnnamedSamplersThatWereUsedLast) {
  config().limits.unnamed_samplers_per_run_max = 2;
  const auto [s, run] = boot_with_session_and_run();
  const RunId other = create_model(s, alice, 1);
  const SamplerId reference = sampler_of(save_for_sampler(other, alice, 1, "", 0));
  const SamplerId follower = sampler_of(save_inflight(run, 1, 1));
  const SamplerId used = sampler_of(save_for_sampler(run, alice, 2, "", 2));
  advance(kSecond);
  const SamplerId unused = sampler_of(save_for_sampler(run, alice, 3, "", 3));
  advance(kSecond);
  EXPECT_EQ(sampled(used), 0);
  advance(kSecond);
  const SamplerId newest = sampler_of(save_for_sampler(run, alice, 4, "", 4));
  const Error gone = plane().get_sampler(alice, unused).error();
  EXPECT_NE(gone.message.find("limits.unnamed_samplers_per_run_max"), std::string::npos) << gone.message;
  for (const SamplerId& kept : {reference, follower, used, newest}) {
    EXPECT_TRUE(plane().get_sampler(alice, kept).ok()) << kept.str();
  }
  settle();
  EXPECT_EQ(files_of(run).size(), 3U);
  EXPECT_EQ(worker().samplers(), 4U);
}

// A store returns its records in the order of their keys, in which sampling session 10 comes before 2.
TEST_F(Publishing, AfterARestartTheOldestUnnamedSamplersAreDropped) {
  keep_state();
  config().limits.unnamed_samplers_per_run_max = 11;
  const auto [s, run] = boot_with_session_and_run();
  std::vector<SamplerId> samplers;
  for (int64_t number = 1; number <= 11; ++number) {
    samplers.push_back(sampler_of(save_for_sampler(run, alice, number, "", number)));
  }
  settle();
  crash_and_boot();
  for (int64_t number = 12; number <= 20; ++number) {
    sampler_of(save_for_sampler(run, alice, number, "", number));
    for (int64_t old = 1; old <= 11; ++old) {
      EXPECT_EQ(plane().get_sampler(alice, samplers[static_cast<size_t>(old - 1)]).ok(), old > number - 11)
          << old << " after " << number;
    }
  }
}

// Two requests may choose the same one to make room, and a third may take the room of another.
TEST_F(Publishing, RequestsAtTheLimitMakeRoomForEachOfThem) {
  constexpr int kThreads = 4, kEach = 12, kCount = kThreads * kEach;
  config().limits.samplers_per_user_max = kCount;
  config().limits.unnamed_samplers_per_run_max = kCount;
  const auto [s, run] = boot_with_session_and_run();
  for (int64_t number = 1; number <= kCount; ++number) sampler_of(save_for_sampler(run, alice, number, "", number));
  std::atomic<int> made = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 1; thread <= kThreads; ++thread) {
      threads.emplace_back([&, thread, session = s] {
        for (int i = 0; i < kEach; ++i)
          made += try_sampler(session, alice, kCount * thread + 1 + i, model).ok() ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(made, kCount);
}

TEST_F(Publishing, AnUnnamedSamplerWithASampleUnderWayIsNotDropped) {
  config().limits.unnamed_samplers_per_run_max = 1;
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId busy = sampler_of(save_for_sampler(run, alice, 1, "", 0));
  settle();
  worker().hold_answers(true);
  const RequestId running = sample(busy, alice);
  worker().hold_answers(false);
  sampler_of(save_for_sampler(run, alice, 2, "", 1));
  EXPECT_TRUE(plane().get_sampler(alice, busy).ok());
  worker().answer_all();
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, running).bytes), 0);
}

TEST_F(Publishing, AnInflightSamplerDoesNotFollowAnotherRun) {
  const auto [s, run] = boot_with_session_and_run();
  const RunId other = create_model(s, alice, 1);
  const SamplerId mine = sampler_of(save_inflight(run, 1, 0));
  optim_step(other, alice, 1);
  sampler_of(save_inflight(other, 2, 1));
  EXPECT_EQ(sampled(mine), 0);
}

// docs/sampling.md: the version of a sample's weights is on its span.
TEST_F(Publishing, TheSpanOfASampleNamesTheVersionOfItsWeights) {
  telemetry::WithCollector collector;
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId sampler = sampler_of(save_inflight(run, 1, 0));
  EXPECT_EQ(sampled(sampler), 0);
  optim_step(run, alice, 2);
  sampler_of(save_inflight(run, 3, 1));
  EXPECT_EQ(sampled(sampler), 1);
  ASSERT_TRUE(collector.flush());
  std::vector<std::string> versions;
  for (const auto& span : collector.receiver.spans()) {
    if (span.name != "sampling_backend.sample") continue;
    versions.push_back(telemetry::testing::text_of(span.attributes, "tuft.lora_id"));
  }
  const std::string path = "tinker://" + run.str() + "/sampler_weights/ephemeral-000";
  ASSERT_EQ(versions.size(), 2U);
  EXPECT_TRUE(versions[0].starts_with(path + "1#")) << versions[0];
  EXPECT_TRUE(versions[1].starts_with(path + "2#")) << versions[1];
}

TEST_F(Publishing, ASampleAtTheWorkerEndsOnTheWeightsItBeganWith) {
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId sampler = sampler_of(save_inflight(run, 1, 0));
  settle();
  worker().hold_answers(true);
  const RequestId running = sample(sampler, alice);
  worker().hold_answers(false);
  optim_step(run, alice, 2);
  sampler_of(save_inflight(run, 3, 1));
  EXPECT_EQ(sampled(sampler), 1);
  settle();
  EXPECT_EQ(worker().samplers(), 2U);
  worker().answer_all();
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, running).bytes), 0);
  settle();
  EXPECT_EQ(worker().samplers(), 1U);
}

TEST_F(Publishing, InflightSamplersFollowAcrossARestartOfTheServer) {
  keep_state();
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId sampler = sampler_of(save_inflight(run, 1, 0));
  optim_step(run, alice, 2);
  sampler_of(save_inflight(run, 3, 1));
  settle();
  crash_and_boot();
  EXPECT_EQ(sampled(sampler), 1);
}

// A loop that makes a new sampler in each step must not write all the former ones again.
TEST_F(Publishing, AnInflightSaveWritesOneRecordHoweverManyFollowTheRun) {
  keep_state();
  const auto [s, run] = boot_with_session_and_run();
  for (int64_t number = 1; number <= 5; ++number) {
    const auto before = contents().copy();
    sampler_of(save_inflight(run, number, number));
    EXPECT_TRUE(durable().ok());
    int written = 0;
    for (const auto& [key, record] : contents().copy()) {
      const auto old = before.find(key);
      const bool same = old != before.end() && old->second == record;
      if (key.find("::sampling_session::") != std::string::npos && !same) ++written;
    }
    EXPECT_EQ(written, 1) << number;
  }
}

// Those that followed it come back on the newest weights, whose record is the newest save's, also twice.
TEST_F(Publishing, FollowersComeBackOnTheNewestWeights) {
  keep_state();
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId first = sampler_of(save_inflight(run, 1, 0));
  for (int64_t number = 1; number <= 3; ++number) {
    optim_step(run, alice, 2 * number);
    sampler_of(save_inflight(run, 2 * number + 1, number));
  }
  settle();
  for (int restart = 0; restart < 2; ++restart) {
    crash_and_boot();
    EXPECT_EQ(sampled(first), 3);
    settle();
    EXPECT_EQ(files_of(run), std::set<std::string>{"ephemeral-0004"});
    EXPECT_TRUE(durable().ok());
  }
  for (const auto& [key, record] : contents().copy()) {
    if (key.find("::sampling_session::") == std::string::npos) continue;
    EXPECT_NE(record.find("ephemeral-0004"), std::string::npos) << key << ": " << record;
  }
}

TEST_F(Publishing, FollowersOutliveTheRecordOfTheNewestSave) {
  keep_state();
  config().limits.samplers_per_user_max = 2;
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId first = sampler_of(save_inflight(run, 1, 0));
  advance(kSecond);
  optim_step(run, alice, 2);
  const SamplerId second = sampler_of(save_inflight(run, 3, 1));
  advance(kSecond);
  EXPECT_EQ(sampled(first), 1);  // the second is now the longest unused, but its record names the weights of both
  settle();
  ASSERT_TRUE(try_sampler(s, alice, 2, model).ok());
  EXPECT_FALSE(plane().get_sampler(alice, first).ok());
  crash_and_boot();
  EXPECT_EQ(sampled(second), 1);
}

TEST_F(Publishing, TheLastFollowerOfARunTakesItsVersionAlong) {
  const auto [s, run] = boot_with_session_and_run();
  sampler_of(save_inflight(run, 1, 0));
  optim_step(run, alice, 2);
  sampler_of(save_inflight(run, 3, 1));
  settle();
  EXPECT_EQ(worker().samplers(), 1U);
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  settle();
  EXPECT_EQ(worker().samplers(), 0U);
  EXPECT_TRUE(files_of(run).empty());
}

TEST_F(Publishing, NextVersionWaitsForTheFileOfTheOneBefore) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId first = save_for_sampler(run, alice, 1, "", 0);
  ASSERT_TRUE(worker().answer_next());
  sampler_of(first);
  wait_for_save_call();
  const RequestId second = save_for_sampler(run, alice, 2, "", 1);
  EXPECT_TRUE(pending(alice, second));
  EXPECT_EQ(worker().calls_of("publish_adapter").size(), 1U);
  worker().stop_holding();
  sampler_of(second);
  settle();
  EXPECT_EQ(files_of(run), (std::set<std::string>{"ephemeral-0001", "ephemeral-0002"}));
}

TEST_F(Publishing, SamplerIsLostIfTheWorkerDiesBeforeTheFileIsWritten) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId saved = save_for_sampler(run, alice, 1, "", 0);
  ASSERT_TRUE(worker().answer_next());
  const SamplerId sampler = sampler_of(saved);
  wait_for_save_call();
  worker().hold_answers(false);
  worker().restart();
  settle();
  EXPECT_EQ(failure(alice, sample(sampler, alice)).reason, "sampler_lost");
  // The run continues, and its next version can be sampled from.
  optim_step(run, alice, 2);
  EXPECT_EQ(sampled(sampler_of(save_for_sampler(run, alice, 3, "", 1))), 1);
}

TEST_F(Publishing, SamplerIsReloadedIfTheWorkerDiesAfterTheFileIsWritten) {
  const RunId run = boot_with_run();
  const SamplerId sampler = sampler_of(save_for_sampler(run, alice, 1, "", 0));
  settle();
  worker().restart();
  EXPECT_EQ(sampled(sampler), 0);
  EXPECT_EQ(worker().calls_of("add_sampler").size(), 1U);
}

// The call reaches the next life of the worker, which does not know the adapter.
TEST_F(Publishing, SampleIsNotSentToALaterLifeOfTheWorker) {
  const RunId run = boot_with_run();
  const SamplerId sampler = sampler_of(save_for_sampler(run, alice, 1, "", 0));
  settle();
  worker().before_next("sample", [this] { worker().restart(); });
  EXPECT_EQ(sampled(sampler), 0) << "it waits until this life has the adapter, too";
  EXPECT_EQ(worker().calls_of("add_sampler").size(), 1U);
}

TEST_F(Publishing, AdapterIsNotLoadedIntoALaterLifeOfTheWorkerThanItIsHeldFor) {
  const RunId run = boot_with_run();
  const SamplerId sampler = sampler_of(save_for_sampler(run, alice, 1, "", 0));
  settle();
  worker().before_next("add_sampler", [this] { worker().restart(); });
  worker().restart();
  (void)sample(sampler, alice);
  settle();
  EXPECT_EQ(sampled(sampler), 0);
  EXPECT_EQ(worker().samplers(), 1U) << "nobody would ever remove the other";
}

// The load has ended in the worker when it tells what it holds, and the answer is still on its way.
TEST_F(Publishing, SamplerThatHasJustBeenLoadedStaysInAWorkerThatJoined) {
  config().supported_models[0].worker = config::WorkerKind::kJoined;
  const auto [s, run] = boot_with_session_and_run();
  const std::string path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "n")).path;
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  worker().die();
  worker().clear_calls();
  worker().hold_answers(true);
  worker().come_up();
  sweep_until([this] { return worker().calls_of("add_sampler").size() == 1; });
  FakeActor loaded(model);
  loaded.start();
  worker::v1::AddSamplerRequest request;
  request.set_sampler_id(worker().calls_of("add_sampler").front().substr(std::string("add_sampler ").size()));
  request.set_directory((folder(run, "sampler_weights") / "n").string());
  loaded.add_sampler(request, {}, [](const auto&) {});
  loaded.move_to(worker());
  ASSERT_EQ(worker().samplers(), 1U);
  worker().say_ready();
  EXPECT_TRUE(worker().calls_of("remove_sampler").empty());
  worker().stop_holding();
  EXPECT_EQ(sampled(sampler), 0);
  EXPECT_EQ(worker().samplers(), 1U);
}

TEST_F(Publishing, FileThatCannotBeWrittenFailsANamedSaveAndLeavesNoVersion) {
  const RunId run = boot_with_run();
  worker().fail_next("save_sampler", internal_error("the disk is full"));
  EXPECT_NE(failure(alice, save_for_sampler(run, alice, 1, "n")).message.find("disk"), std::string::npos);
  settle();
  EXPECT_EQ(worker().samplers(), 0U);
  EXPECT_TRUE(files_of(run).empty());
}

TEST_F(Publishing, SamplerOfAFileThatCannotBeWrittenLivesInMemory) {
  const RunId run = boot_with_run();
  worker().fail_next("save_sampler", internal_error("the disk is full"));
  const SamplerId sampler = sampler_of(save_for_sampler(run, alice, 1, "", 0));
  settle();
  EXPECT_EQ(sampled(sampler), 0);
}

TEST_F(Publishing, SamplerDroppedBeforeItsFileIsWrittenLeavesNothing) {
  const auto [s, run] = boot_with_session_and_run();
  worker().hold_answers(true);
  const RequestId saved = save_for_sampler(run, alice, 1, "", 0);
  ASSERT_TRUE(worker().answer_next());
  sampler_of(saved);
  wait_for_save_call();
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  worker().stop_holding();
  settle();
  EXPECT_EQ(worker().samplers(), 0U);
  EXPECT_TRUE(files_of(run).empty());
}

}  // namespace
}  // namespace tuft::control
