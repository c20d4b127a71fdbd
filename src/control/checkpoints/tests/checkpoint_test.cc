// Tests of saving, loading and sampling checkpoints.
#include <fstream>
#include <set>

#include "control/tests/plane.h"

namespace tuft::control {
namespace {

namespace fs = std::filesystem;

class Checkpoints : public PlaneTest {};

TEST_F(Checkpoints, SaveHasItsDirectoryAndMetadata) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  EXPECT_EQ(value<SaveWeightsResult>(alice, save(run, alice, 2, "first")).path,
            "tinker://" + run.str() + "/weights/first");
  EXPECT_EQ(names_in(folder(run, "weights")), std::set<std::string>{"first"});
  EXPECT_EQ(names_in(folder(run, "weights") / "first"), (std::set<std::string>{"metadata.json", "weights"}));
  std::ifstream file(folder(run, "weights") / "first" / "metadata.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  for (const char* part : {"\"owner_name\": \"alice\"", "\"checkpoint_type\": \"training\"", "\"lora_rank\": 8",
                           "\"public\": false", "\"seq_id\": 2", "\"size_bytes\": 100", "\"lora_alpha\": 16.0"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST_F(Checkpoints, DefaultNamesAreNumberedPerKind) {
  const RunId run = boot_with_run();
  const std::string base = "tinker://" + run.str();
  save(run, alice, 1, "checkpoint-0002");
  EXPECT_EQ(value<SaveWeightsResult>(alice, save(run, alice, 2)).path, base + "/weights/checkpoint-0001");
  EXPECT_EQ(value<SaveWeightsResult>(alice, save(run, alice, 3)).path, base + "/weights/checkpoint-0003");
  const auto sampler = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 4, ""));
  EXPECT_EQ(sampler.path, base + "/sampler_weights/checkpoint-0001");
}

TEST_F(Checkpoints, ExistingNameNeedsOverwrite) {
  const RunId run = boot_with_run();
  const RequestId first = save(run, alice, 1, "x");
  optim_step(run, alice, 2);
  const Error error = failure(alice, save(run, alice, 3, "x"));
  EXPECT_EQ(error.code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(is_user_error(error.code));
  EXPECT_NE(error.message.find("overwrite=True"), std::string::npos);
  EXPECT_EQ(save(run, alice, 1, "x"), first);  // the repeated request does not save again
  const auto path = value<SaveWeightsResult>(alice, save(run, alice, 4, "x", true)).path;
  settle();
  EXPECT_EQ(names_in(folder(run, "weights")), std::set<std::string>{"x~2"});
  optim_step(run, alice, 5);
  value<LoadWeightsResult>(alice, load(run, alice, 6, path));
  EXPECT_EQ(worker().weights_of(run.str()), 1);
  // A checkpoint of the other kind may have the same name.
  EXPECT_TRUE(value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 7, "x")).path.has_value());
}

TEST_F(Checkpoints, BadNameFailsWithoutEffect) {
  const RunId run = boot_with_run();
  int64_t seq = 1;
  for (const char* name : {"../x", "/etc/x", "a/b", "..", ".", ".hidden", "a b", "\xc3\xa4"}) {
    EXPECT_EQ(failure(alice, save(run, alice, seq++, name)).code, ErrorCode::kInvalidArgument) << name;
    EXPECT_EQ(failure(alice, save_for_sampler(run, alice, seq++, name)).code, ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_TRUE(worker().calls_of("save_state").empty());
  EXPECT_TRUE(names_in(config().checkpoint_dir).empty());
}

TEST_F(Checkpoints, FailedSaveKeepsThePreviousCheckpoint) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "x"));
  worker().fail_next("save_state", internal_error("no space on " + (config().checkpoint_dir / "deep/file").string()));
  const Error error = failure(alice, save(run, alice, 2, "x", true));
  EXPECT_EQ(error.code, ErrorCode::kInternal);
  EXPECT_EQ(error.message.find(config().checkpoint_dir.string()), std::string::npos) << error.message;
  EXPECT_EQ(names_in(folder(run, "weights")), std::set<std::string>{"x"});
  value<SaveWeightsResult>(alice, save(run, alice, 3, "y"));
}

TEST_F(Checkpoints, CheckpointsSurviveARestart) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const auto path = value<SaveWeightsResult>(alice, save(run, alice, 2, "keep")).path;
  const auto ephemeral = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 3, "", 0)).sampler;
  ASSERT_TRUE(ephemeral.has_value());
  fs::create_directories(folder(run, "weights") / ".tuft-left");
  fs::create_directories(folder(run, "weights") / "broken");
  boot();
  EXPECT_EQ(names_in(folder(run, "weights")), (std::set<std::string>{"broken", "keep"}));
  EXPECT_TRUE(names_in(folder(run, "sampler_weights")).empty());
  const auto info = plane().weights_info(alice, path);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->base_model, model);
  EXPECT_EQ(info->lora_rank, 8);
  EXPECT_TRUE(info->train_unembed);
  EXPECT_FALSE(plane().weights_info(bob, path).ok());
  const SessionId s = session(alice);
  const RunId resumed = create_model(s, alice);
  EXPECT_EQ(value<LoadWeightsResult>(alice, load(resumed, alice, 1, path)).path, path);
  EXPECT_EQ(worker().weights_of(resumed.str()), 1);
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, sample(sampler, alice)).bytes), 1);
}

TEST_F(Checkpoints, LoadRequiresAMatchingConfiguration) {
  const SessionId s = boot_with_session();
  const RunId run = create_model(s, alice, 0, 8);
  const auto path = value<SaveWeightsResult>(alice, save(run, alice, 1, "x")).path;
  const RunId other = create_model(s, alice, 1, 4);
  const Error error = failure(alice, load(other, alice, 1, path));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error.message.find("is 8"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("is 4"), std::string::npos) << error.message;
  CreateModel narrow = create_request(s, 2);
  narrow.lora.train_mlp = false;
  const RunId third = value<CreateModelResult>(alice, plane().create_model(alice, narrow, no_trace)->request).run;
  EXPECT_NE(failure(alice, load(third, alice, 1, path)).message.find("modules"), std::string::npos);
  EXPECT_EQ(failure(alice, load(run, alice, 2, "tinker://x/weights/none")).code, ErrorCode::kNotFound);
  EXPECT_EQ(failure(alice, load(run, alice, 3, "../../etc/passwd")).code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(worker().calls_of("load_state").empty());
}

TEST_F(Checkpoints, OnlyATrainingCheckpointHasOptimizerState) {
  const RunId run = boot_with_run();
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "s")).path;
  EXPECT_EQ(failure(alice, load(run, alice, 2, path, true)).code, ErrorCode::kInvalidArgument);
  value<LoadWeightsResult>(alice, load(run, alice, 3, path, false));
  EXPECT_EQ(worker().calls_of("load_state"), std::vector<std::string>{"load_state " + run.str()});
}

TEST_F(Checkpoints, ReplacedSamplerCheckpointKeepsItsSamplers) {
  const SessionId s = boot_with_session();
  const RunId run = create_model(s, alice);
  optim_step(run, alice, 1);
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 2, "live")).path;
  const SamplerId before = *try_sampler(s, alice, 0, "", path);
  optim_step(run, alice, 3);
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 4, "live"));
  const SamplerId after = *try_sampler(s, alice, 1, "", path);
  const auto number = [&](const SamplerId& sampler) {
    return sampled_number(value<ProtobufResult>(alice, sample(sampler, alice)).bytes);
  };
  EXPECT_EQ(number(before), 1);
  EXPECT_EQ(number(after), 2);
  // This also holds after the worker has lost both.
  worker().restart();
  EXPECT_EQ(number(before), 1);
  EXPECT_EQ(number(after), 2);
}

TEST_F(Checkpoints, UnnamedSaveMakesASamplerOfItsVersion) {
  const auto [s, run] = boot_with_session_and_run();
  optim_step(run, alice, 1);
  const RequestId request = save_for_sampler(run, alice, 2, "", 5);
  const auto result = value<SaveWeightsForSamplerResult>(alice, request);
  EXPECT_FALSE(result.path.has_value());
  ASSERT_EQ(result.sampler, SamplerId(s.str() + ":sample:5"));
  optim_step(run, alice, 3);
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, sample(*result.sampler, alice)).bytes), 1);
  // The client draws another sampling_session_seq_id when it repeats the save.
  EXPECT_EQ(save_for_sampler(run, alice, 2, "", 6), request);
  EXPECT_EQ(plane().get_sampler(alice, *result.sampler)->base_model, model);
}

TEST_F(Checkpoints, ANamedSaveOutlivesTheUnnamedOneThatHadItsName) {
  config().limits.unnamed_samplers_per_run_max = 1;
  const RunId run = boot_with_run();
  const auto first = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 0)).sampler;
  const auto shown = plane().get_sampler(alice, first)->model_path;
  ASSERT_EQ(shown, "tinker://" + run.str() + "/sampler_weights/ephemeral-0001");
  settle();
  optim_step(run, alice, 2);
  const RequestId named = save_for_sampler(run, alice, 3, "ephemeral-0001");
  EXPECT_EQ(value<SaveWeightsForSamplerResult>(alice, named).path, shown);
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, sample(first, alice)).bytes), 0);
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 4, "", 1));
  EXPECT_EQ(plane().get_sampler(alice, first).error().code, ErrorCode::kNotFound);
  settle();
  EXPECT_TRUE(plane().weights_info(alice, *shown).ok());
  EXPECT_EQ(names_in(folder(run, "sampler_weights")), (std::set<std::string>{"ephemeral-0001~2", "ephemeral-0002"}));
}

TEST_F(Checkpoints, AtTheSamplerLimitTheLeastRecentlyUsedUnnamedOneIsDropped) {
  config().limits.samplers_per_user_max = 2;
  const auto [s, run] = boot_with_session_and_run();
  const SamplerId base = *try_sampler(s, alice, 0, model);
  const auto first = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 1)).sampler;
  advance(kSecond);
  const auto second = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 2, "", 2)).sampler;
  EXPECT_EQ(plane().get_sampler(alice, first).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(plane().get_sampler(alice, base).ok());
  EXPECT_TRUE(plane().get_sampler(alice, second).ok());
  EXPECT_EQ(worker().samplers(), 1U);
  settle();
  EXPECT_EQ(names_in(folder(run, "sampler_weights")), std::set<std::string>{"ephemeral-0002"});
  config().limits.samplers_per_user_max = 1;
  const SessionId t = boot_with_session();
  ASSERT_TRUE(try_sampler(t, alice, 0, model).ok());
  const auto refused = try_sampler(t, alice, 1, model);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("limits.samplers_per_user_max"), std::string::npos);
}

}  // namespace
}  // namespace tuft::control
