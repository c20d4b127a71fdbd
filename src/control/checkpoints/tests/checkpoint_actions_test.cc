// Tests of checkpoint actions and of the lifetime of files.
#include <algorithm>
#include <fstream>
#include <future>
#include <set>
#include <string>
#include <vector>

#include "control/checkpoints/tests/checkpoint_actions_fixture.h"

namespace tuft::control {
namespace {

namespace fs = std::filesystem;

TEST_F(CheckpointActionsTest, DeletedCheckpointIsKeptForItsSamplersOnly) {
  const auto [s, run] = boot_with_session_and_run();
  optim_step(run, alice, 1);
  const std::string path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 2, "live")).path;
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  ASSERT_TRUE(remove(alice, path).ok());
  EXPECT_FALSE(visible(alice, path));
  EXPECT_EQ(remove(alice, path).error().code, ErrorCode::kNotFound);
  worker().restart();
  let_pass();
  value<ProtobufResult>(alice, sample(sampler, alice));
  EXPECT_FALSE(try_sampler(s, alice, 1, "", path).ok());
  // The name can be used again while the old files are still in use.
  optim_step(run, alice, 3);
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 4, "live"));
  EXPECT_EQ(names_in(folder(run, "sampler_weights")), (std::set<std::string>{"live", "live~2"}));
  boot();  // the old files are no longer in use
  EXPECT_EQ(names_in(folder(run, "sampler_weights")), std::set<std::string>{"live~2"});
  EXPECT_TRUE(visible(alice, path));
}

TEST_F(CheckpointActionsTest, DeleteAnsweredUnavailableCanBeRepeated) {
  keep_state();
  boot();
  const std::string path = saved(create_model(alice), 1, "a");
  contents().set_reachable(false);
  EXPECT_EQ(remove(alice, path).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(visible(alice, path));
  contents().set_reachable(true);
  while (!plane().ready()) advance(kSecond / 10);
  EXPECT_EQ(remove(bob, path).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(remove(alice, path).ok());
  EXPECT_EQ(remove(alice, path).error().code, ErrorCode::kNotFound);
}

TEST_F(CheckpointActionsTest, UnusedFilesAreRemovedAtOnce) {
  const RunId run = boot_with_run();
  const std::string first = saved(run, 1, "first");
  saved(run, 2, "second");
  ASSERT_TRUE(remove(alice, first).ok());
  let_pass();
  EXPECT_EQ(names_in(folder(run)), std::set<std::string>{"second"});
}

TEST_F(CheckpointActionsTest, TheFoldersOfARunGoWithItsLastCheckpoint) {
  const RunId run = boot_with_run();
  const fs::path of_run = folder(run).parent_path();
  const std::string first = saved(run, 1, "first");
  const std::string second = saved(run, 2, "second");
  ASSERT_TRUE(remove(alice, first).ok());
  let_pass();
  EXPECT_TRUE(fs::exists(folder(run)));
  ASSERT_TRUE(remove(alice, second).ok());
  let_pass();
  EXPECT_TRUE(fs::exists(folder(run))) << "the run could be restored from its newest checkpoint";
  const auto unloaded = plane().unload_model(alice, run, no_trace);
  ASSERT_TRUE(unloaded.ok());
  ASSERT_TRUE(wait(alice, unloaded->request).ok());
  let_pass();
  EXPECT_FALSE(fs::exists(of_run));
}

TEST_F(CheckpointActionsTest, TheFolderOfASaveThatIsWrittenStaysWhileAnotherCheckpointGoes) {
  const RunId run = boot_with_run();
  const fs::path samplers = folder(run, "sampler_weights");
  const auto first = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "first"));
  let_pass();
  worker().hold_answers(true);
  const RequestId second = save_for_sampler(run, alice, 2, "second");
  sweep_until([&] { return worker().held() == 1; });
  ASSERT_TRUE(worker().answer_next());  // publish_adapter
  sweep_until([&] { return worker().held() == 1; });
  ASSERT_TRUE(remove(alice, *first.path).ok());
  let_pass();
  EXPECT_FALSE(fs::exists(samplers / "first"));
  EXPECT_TRUE(fs::exists(samplers));
  worker().stop_holding();
  value<SaveWeightsForSamplerResult>(alice, second);
  EXPECT_EQ(names_in(samplers), std::set<std::string>{"second"});
}

TEST_F(CheckpointActionsTest, TheNextStartRemovesEmptyFolders) {
  const RunId run = boot_with_run();
  const fs::path other = folder(run).parent_path().parent_path() / "a run that ended";
  fs::create_directories(other / "weights");
  fs::create_directories(other / "sampler_weights");
  boot();
  EXPECT_FALSE(fs::exists(other));
}

TEST_F(CheckpointActionsTest, RunIsRestoredFromADeletedCheckpointUntilTheServerStops) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  ASSERT_TRUE(remove(alice, saved(run, 2, "only")).ok());
  let_pass();
  worker().restart();
  sweep_until([&] { return worker().weights_of(run.str()) == 1; });
}

TEST_F(CheckpointActionsTest, ARunWhoseCheckpointWasDeletedIsRefusedAtEveryStartUntilItsUserDecides) {
  keep_state();
  const RunId theirs = boot_with_run();
  optim_step(theirs, alice, 1);
  const std::string spare = saved(theirs, 2, "spare");
  optim_step(theirs, alice, 3);
  const std::string path = saved(theirs, 4, "one");
  for (const std::string& each : {spare, path}) ASSERT_TRUE(set_public(alice, each, true).ok());
  const RunId run = create_model(bob);
  value<LoadWeightsResult>(bob, load(run, bob, 1, path));
  ASSERT_TRUE(remove(alice, path).ok());
  for (const int64_t seq : {2, 3}) {
    ASSERT_TRUE(durable().ok());
    boot();
    const Error error = failure(bob, optim_step(run, bob, seq));
    EXPECT_EQ(error.reason, "model_lost");
    EXPECT_NE(error.message.find(path + " is gone"), std::string::npos) << error.message;
  }
  EXPECT_EQ(worker().weights_of(theirs.str()), 1) << "a run with another checkpoint of its own goes back to that";
  value<LoadWeightsResult>(bob, load(run, bob, 4, spare));
  value<OptimStepResult>(bob, optim_step(run, bob, 5));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(CheckpointActionsTest, OnlyTheOwnerActs) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "x");
  const Status foreign = remove(bob, path);
  EXPECT_EQ(foreign.error().code, ErrorCode::kNotFound);
  const Status unknown = remove(bob, "tinker://" + run.str() + "/weights/y");
  EXPECT_EQ(unknown.error().message.substr(unknown.error().message.find(' ', 11)),
            foreign.error().message.substr(foreign.error().message.find(' ', 11)));
  EXPECT_EQ(set_public(bob, path, true).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(set_public(alice, path, true).ok());
  EXPECT_EQ(remove(bob, path).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(set_ttl(bob, path, 5).error().code, ErrorCode::kPermissionDenied);
  EXPECT_TRUE(visible(alice, path));
}

TEST_F(CheckpointActionsTest, PublicCheckpointIsVisibleToAllUsersUntilItIsPrivate) {
  keep_state();
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "x");
  EXPECT_FALSE(visible(bob, path));
  ASSERT_TRUE(set_public(alice, path, true).ok());
  ASSERT_TRUE(set_public(alice, path, true).ok());
  const RunId other = create_model(bob);
  value<LoadWeightsResult>(bob, load(other, bob, 1, path));
  EXPECT_TRUE(try_sampler(session(bob), bob, 0, "", path).ok());
  boot();  // it is stored
  EXPECT_TRUE(visible(bob, path));
  ASSERT_TRUE(set_public(alice, path, false).ok());
  EXPECT_FALSE(visible(bob, path));
  boot();
  EXPECT_FALSE(visible(bob, path));
}

TEST_F(CheckpointActionsTest, CheckpointWithATtlExpires) {
  const RunId run = boot_with_run();
  SaveWeights request{run, 1, "short", 10, false};
  value<SaveWeightsResult>(alice, plane().save_weights(alice, request, no_trace)->request);
  SaveWeightsForSampler sampler_request{run, 2, "short", std::nullopt, 10};
  value<SaveWeightsForSamplerResult>(alice,
                                     plane().save_weights_for_sampler(alice, sampler_request, no_trace)->request);
  const std::string base = "tinker://" + run.str();
  const std::string kept = saved(run, 3, "kept");
  let_pass(9 * kSecond);
  EXPECT_TRUE(visible(alice, base + "/weights/short"));
  let_pass();
  EXPECT_FALSE(visible(alice, base + "/weights/short"));
  EXPECT_FALSE(visible(alice, base + "/sampler_weights/short"));
  let_pass();
  EXPECT_TRUE(visible(alice, kept));
  EXPECT_EQ(names_in(folder(run)), std::set<std::string>{"kept"});
  EXPECT_TRUE(names_in(folder(run, "sampler_weights")).empty());
}

// One task of the disk thread removed all that had expired, and nobody's save went on meanwhile.
TEST_F(CheckpointActionsTest, OthersHaveTheirTurnsWhileManyExpire) {
  const RunId run = boot_with_run();
  std::vector<std::string> paths;
  for (int64_t seq = 1; seq <= 40; ++seq) {
    const SaveWeights request{run, seq, "short" + std::to_string(seq), 10, false};
    paths.push_back(value<SaveWeightsResult>(alice, plane().save_weights(alice, request, no_trace)->request).path);
  }
  const auto left = [&] {
    return std::count_if(paths.begin(), paths.end(), [&](const std::string& path) { return visible(alice, path); });
  };
  const CheckpointPath bobs = path_of(value<SaveWeightsResult>(bob, save(create_model(bob), bob, 1, "mine")).path);
  // The disk thread waits in the answer to bob's first request until the sweep and his second one are queued.
  std::promise<void> waits;
  std::promise<void> queued;
  actions().set_public(bob, bobs, false, no_trace, [&](const Status&) {
    waits.set_value();
    queued.get_future().wait();
  });
  waits.get_future().wait();
  advance(20 * kSecond);
  std::promise<int64_t> seen;
  actions().set_public(bob, bobs, false, no_trace, [&](const Status&) { seen.set_value(left()); });
  queued.set_value();
  EXPECT_EQ(seen.get_future().get(), 40 - 16);
  sweep_until([&] { return left() == 0; });
}

TEST_F(CheckpointActionsTest, ExpiredOnesThatCannotBeRemovedDoNotKeepTheOthers) {
  const RunId run = boot_with_run();
  std::vector<std::string> paths;
  const auto obstacle = [&](int64_t seq) { return folder(run) / ("s" + std::to_string(seq)) / "deleted.json"; };
  for (int64_t seq = 1; seq <= 20; ++seq) {
    const SaveWeights request{run, seq, "s" + std::to_string(seq), seq < 20 ? 10 : 11, false};
    paths.push_back(value<SaveWeightsResult>(alice, plane().save_weights(alice, request, no_trace)->request).path);
    if (seq < 20) fs::create_directories(obstacle(seq) / "full");  // the mark of a deleted one cannot replace it
  }
  advance(20 * kSecond);
  sweep_until([&] { return !visible(alice, paths.back()); });
  EXPECT_TRUE(visible(alice, paths.front()));
  for (int64_t seq = 1; seq < 20; ++seq) fs::remove_all(obstacle(seq));
  advance(3 * kSecond);
  sweep_until([&] {
    return std::none_of(paths.begin(), paths.end(), [&](const std::string& path) { return visible(alice, path); });
  });
}

TEST_F(CheckpointActionsTest, TtlCanBeSetChangedAndRemoved) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "x");
  ASSERT_TRUE(set_ttl(alice, path, 10).ok());
  ASSERT_TRUE(set_ttl(alice, path, 1'000).ok());
  let_pass(20 * kSecond);
  EXPECT_TRUE(visible(alice, path));
  ASSERT_TRUE(set_ttl(alice, path, std::nullopt).ok());
  let_pass(2'000 * kSecond);
  EXPECT_TRUE(visible(alice, path));
  EXPECT_EQ(set_ttl(alice, path, 0).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(set_ttl(alice, path, std::numeric_limits<int64_t>::max()).ok());
  ASSERT_TRUE(set_ttl(alice, path, 5).ok());
  boot();  // it is stored
  let_pass(10 * kSecond);
  EXPECT_FALSE(visible(alice, path));
}

// Each change wrote all of it, up to 400 KB, to the store as well, which serves everybody.
TEST_F(CheckpointActionsTest, LongMetadataIsInTheFileAndNotInTheStore) {
  keep_state();
  CreateModel request = create_request(boot_with_session());
  request.user_metadata["note"] = std::string(60'000, '\x01');  // six bytes of JSON for each
  const auto created = plane().create_model(alice, request, no_trace);
  ASSERT_TRUE(created.ok()) << created.error().message;
  const RunId run = value<CreateModelResult>(alice, created->request).run;
  const auto record = [&] {
    EXPECT_TRUE(durable().ok());
    const auto records = contents().copy();
    const auto found = records.find("persistence-tuft-server::training_run::" + run.str() + "::ckpt::x");
    return found == records.end() ? std::string() : found->second;
  };
  const std::string path = saved(run, 1, "x");
  EXPECT_LT(record().size(), 4'000U);
  ASSERT_TRUE(set_public(alice, path, true).ok());
  ASSERT_TRUE(set_ttl(alice, path, 1'000).ok());
  EXPECT_NE(record().find("\"public\": true"), std::string::npos) << record().substr(0, 4'000);
  EXPECT_LT(record().size(), 4'000U);
  EXPECT_GT(fs::file_size(folder(run) / "x" / "metadata.json"), 360'000U);
}

TEST_F(CheckpointActionsTest, SaveOverTheLimitFailsBeforeTheWorkerWrites) {
  config().limits.checkpoint_bytes_per_user_max = 250;  // each is 100
  const RunId run = boot_with_run();
  const std::string first = saved(run, 1, "one");
  saved(run, 2, "two");
  worker().clear_calls();
  const Error error = failure(alice, save(run, alice, 3, "three"));
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(is_user_error(error.code));
  EXPECT_NE(error.message.find("limits.checkpoint_bytes_per_user_max"), std::string::npos) << error.message;
  EXPECT_TRUE(worker().calls_of("save_state").empty());
  saved(run, 4, "two", true);  // needs no further bytes
  ASSERT_TRUE(remove(alice, first).ok());
  saved(run, 5, "three");
  value<SaveWeightsResult>(bob, save(create_model(bob), bob, 1, "mine"));  // other users have their own limit
}

TEST_F(CheckpointActionsTest, AFullDiskIsSaidToTheClientWithoutItsPath) {
  const RunId run = boot_with_run();
  for (const char* call : {"save_state", "save_sampler"}) {
    worker().fail_next(call, Error{ErrorCode::kResourceExhausted, "cannot write /srv/x: No space left", "disk_full"});
  }
  for (const RequestId& failed : {save(run, alice, 1, "a"), save_for_sampler(run, alice, 2, "s")}) {
    const Error error = failure(alice, failed);
    EXPECT_EQ(error.reason, "disk_full");
    EXPECT_NE(error.message.find("the disk of the server's checkpoints is full"), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find("/srv"), std::string::npos) << error.message;
  }
  saved(run, 3, "a");
}

TEST_F(CheckpointActionsTest, UnnamedSavesAreDroppedForNewerOnes) {
  config().limits.checkpoint_bytes_per_user_max = 250;
  const RunId run = boot_with_run();
  std::vector<SamplerId> samplers;
  const auto save_unnamed = [&] {
    const auto seq = static_cast<int64_t>(samplers.size()) + 1;
    samplers.push_back(*value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, seq, "", seq)).sampler);
    clock().advance(kSecond);
  };
  for (int i = 0; i < 4; ++i) save_unnamed();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(plane().get_sampler(alice, samplers[i]).ok(), i >= 2) << i;
  const Error error = plane().get_sampler(alice, samplers[0]).error();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_NE(error.message.find("limits.checkpoint_bytes_per_user_max"), std::string::npos) << error.message;
  EXPECT_EQ(plane().get_sampler(bob, samplers[0]).error().message,
            plane().get_sampler(bob, SamplerId("none")).error().message);
  // A checkpoint in use is not dropped, and nothing is dropped for a save that would not fit anyway.
  settle();
  worker().hold_answers(true);
  const RequestId running = sample(samplers[2], alice);
  worker().hold_answers(false);
  save_unnamed();
  EXPECT_TRUE(plane().get_sampler(alice, samplers[2]).ok());
  EXPECT_FALSE(plane().get_sampler(alice, samplers[3]).ok());
  worker().answer_all();
  value<ProtobufResult>(alice, running);
  saved(run, 6, "named");
  saved(run, 7, "another");
  EXPECT_EQ(failure(alice, save(run, alice, 8, "third")).reason, "checkpoint_bytes_per_user_max");
}

TEST_F(CheckpointActionsTest, ADeletedCheckpointCountsForThoseWhoStillUseIt) {
  config().limits.checkpoint_bytes_per_user_max = 250;  // each is 100
  const auto [s, run] = boot_with_session_and_run();
  const auto save_named = [this, run = run](int64_t seq, const std::string& name) {
    return *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, seq, name)).path;
  };
  const RunId bobs = create_model(bob);
  value<SaveWeightsResult>(bob, save(bobs, bob, 1, "mine"));
  for (const char* name : {"one", "two"}) {
    const std::string path = save_named(name == std::string("one") ? 1 : 2, name);
    ASSERT_TRUE(set_public(alice, path, true).ok());
    value<ProtobufResult>(bob, sample(*try_sampler(session(bob), bob, 0, "", path), bob));
  }
  for (const char* name : {"one", "two"}) {
    ASSERT_TRUE(remove(alice, "tinker://" + run.str() + "/sampler_weights/" + name).ok());
  }
  // They were alice's until she deleted them, and are bob's as long as he samples from them.
  save_named(3, "three");
  save_named(4, "four");
  const Error full = failure(bob, save(bobs, bob, 2, "more"));
  EXPECT_EQ(full.reason, "checkpoint_bytes_per_user_max");
  EXPECT_NE(full.message.find("take 300 bytes"), std::string::npos) << full.message;
}

TEST_F(CheckpointActionsTest, AnOwnerCannotKeepDeletedFilesForNothing) {
  config().limits.checkpoint_bytes_per_user_max = 250;
  const auto [s, run] = boot_with_session_and_run();
  for (int64_t seq = 1; seq <= 2; ++seq) {
    const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, seq, "again")).path;
    ASSERT_TRUE(try_sampler(s, alice, seq, "", path).ok());
    ASSERT_TRUE(remove(alice, path).ok());
  }
  EXPECT_EQ(failure(alice, save_for_sampler(run, alice, 3, "again")).reason, "checkpoint_bytes_per_user_max");
}

TEST_F(CheckpointActionsTest, SamplerThatCannotBeRestoredGivesTheReason) {
  keep_state();
  const auto [s, run] = boot_with_session_and_run();
  const std::string path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "live")).path;
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  ASSERT_TRUE(remove(alice, path).ok());
  EXPECT_TRUE(plane().get_sampler(alice, sampler).ok());
  close();
  boot();
  for (const Error& error : {plane().get_sampler(alice, sampler).error(),
                             plane().sample(alice, sample_request(sampler), no_trace).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    EXPECT_NE(error.message.find(path + " was deleted or replaced"), std::string::npos) << error.message;
  }
  EXPECT_EQ(plane().get_sampler(bob, sampler).error().reason, "sampler_not_found");
}

TEST_F(CheckpointActionsTest, SaveThatExceedsTheLimitAfterwardsIsRemoved) {
  config().limits.checkpoint_bytes_per_user_max = 50;
  const RunId run = boot_with_run();
  EXPECT_EQ(failure(alice, save(run, alice, 1, "x")).code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(visible(alice, "tinker://" + run.str() + "/weights/x"));
  EXPECT_TRUE(names_in(folder(run)).empty());
}

TEST_F(CheckpointActionsTest, LeftoversOfACrashAreRemoved) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const std::string path = saved(run, 2, "x");
  const fs::path weights = folder(run);
  const auto copy = [&](const char* to) { fs::copy(weights / "x", weights / to, fs::copy_options::recursive); };
  copy("x~2");  // replaced, and the old one not marked yet
  write(weights / "x~2" / "weights", "7");
  copy("x~3");  // deleted, and its files not removed yet
  fs::rename(weights / "x~3" / "metadata.json", weights / "x~3" / "deleted.json");
  copy(".tuft-abc");            // saved by the worker, not committed
  copy("..tuft-abd.tmp-1234");  // being written by the worker
  write(weights / "x~2" / "metadata.json.tmp-1234", "{");
  boot();
  EXPECT_EQ(names_in(weights), std::set<std::string>{"x~2"});
  EXPECT_EQ(names_in(weights / "x~2"), (std::set<std::string>{"metadata.json", "weights"}));
  const RunId other = create_model(alice);
  value<LoadWeightsResult>(alice, load(other, alice, 1, path));
  EXPECT_EQ(worker().weights_of(other.str()), 7);
}

TEST_F(CheckpointActionsTest, ForeignDirectoriesAreUnchangedAndUnused) {
  const RunId run = boot_with_run();
  saved(run, 1, "x");
  const fs::path weights = folder(run);
  const auto copy = [&](const char* to) { fs::copy(weights / "x", weights / to, fs::copy_options::recursive); };
  copy("renamed");
  fs::create_directory(weights / "empty");
  fs::create_directory_symlink(weights / "x", weights / "linked");
  fs::create_directory(weights / "later");
  std::ifstream file(weights / "x" / "metadata.json");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.replace(text.find("\"format_version\": 1"), 19, "\"format_version\": 2");
  write(weights / "x" / "metadata.json", text);
  const std::string base = "tinker://" + run.str() + "/weights/";
  boot();
  for (const char* name : {"x", "renamed", "empty", "linked", "later"}) {
    EXPECT_FALSE(visible(alice, base + name)) << name;
    EXPECT_TRUE(fs::exists(weights / name)) << name;
  }
}

TEST_F(CheckpointActionsTest, CheckpointWithALinkIsNotUsed) {
  const RunId run = boot_with_run();
  const std::string path = saved(run, 1, "x");
  fs::create_symlink("/etc/hostname", folder(run) / "x" / "adapter_model.safetensors");
  boot();
  EXPECT_FALSE(visible(alice, path));
}

TEST_F(CheckpointActionsTest, EphemeralCheckpointIsKeptIfARecordCannotBeRead) {
  keep_state();
  const RunId run = boot_with_run();
  const SamplerId sampler = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 5)).sampler;
  const auto records = contents().copy();
  const std::string ending = "::sampling_session::" + sampler.str();
  const auto found =
      std::find_if(records.begin(), records.end(), [&](const auto& e) { return e.first.ends_with(ending); });
  ASSERT_NE(found, records.end());
  contents().put(found->first, "{torn");
  boot();
  EXPECT_EQ(names_in(folder(run, "sampler_weights")), std::set<std::string>{"ephemeral-0001"});
  contents().put(found->first, found->second);
  boot();
  value<ProtobufResult>(alice, sample(sampler, alice));
}

TEST(CheckpointTimes, RoundTrip) {
  const Nanos time = 1'769'860'800 * kSecond + 123'456 * kMicrosecond;
  EXPECT_EQ(iso_time(time), "2026-01-31T12:00:00.123456+00:00");
  EXPECT_EQ(parse_iso_time(iso_time(time)), time);
  for (const char* text : {"", "2026-01-31", "2026-02-30T12:00:00.000000+00:00", "2026-01-31T12:00:00.000000+01:00",
                           "2026-01-31T12:00:00.000000+00:00x"}) {
    EXPECT_FALSE(parse_iso_time(text).has_value()) << text;
  }
  EXPECT_EQ(parse_iso_time(iso_time(expiry_after(time, std::numeric_limits<int64_t>::max()))),
            expiry_after(time, std::numeric_limits<int64_t>::max()));
}

}  // namespace
}  // namespace tuft::control
