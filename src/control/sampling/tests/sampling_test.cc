#include <limits>

#include "control/sampling/sample_request.h"
#include "control/sampling/sampling_controller.h"
#include "control/tests/plane.h"
#include "rpc/methods.h"

namespace tuft::control {
namespace {

class Sampling : public PlaneTest {};

TEST_F(Sampling, SamplesFromTheBaseModel) {
  const SessionId s = boot_with_session();
  const SamplerId sampler = *try_sampler(s, alice, 7, model);
  EXPECT_EQ(sampler, SamplerId(s.str() + ":sample:7"));
  EXPECT_EQ(*try_sampler(s, alice, 7, model), sampler);
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, sample(sampler, alice)).bytes), -1);
  EXPECT_EQ(worker().last_sample().prompt_tokens().size(), 12U);
  const auto info = plane().get_sampler(alice, sampler);
  EXPECT_EQ(info->base_model, model);
  EXPECT_FALSE(info->model_path.has_value());
}

TEST_F(Sampling, ASessionSeqIdBelongsToOneModel) {
  const auto [s, run] = boot_with_session_and_run();
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "n")).path;
  ASSERT_TRUE(try_sampler(s, alice, 0, model).ok());
  EXPECT_EQ(try_sampler(s, alice, 0, "", path).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(try_sampler(s, alice, 1, "").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(try_sampler(s, alice, 1, "nope").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(try_sampler(s, alice, 1, "", "tinker://a/weights/b").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(try_sampler(s, alice, 1, "", "nonsense").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(try_sampler(s, alice, -1, model).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Sampling, SamplesWaitForTheLoadAndShareIt) {
  const auto [s, run] = boot_with_session_and_run();
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "n")).path;
  advance(kUnusedAdapterKept + kSecond);  // the published version has left the worker
  worker().hold_answers(true);
  const SamplerId first = *try_sampler(s, alice, 0, "", path);
  const SamplerId second = *try_sampler(s, alice, 1, "", path);
  const RequestId a = sample(first, alice);
  const RequestId b = sample(second, alice);
  EXPECT_EQ(worker().calls_of("add_sampler").size(), 1U);
  EXPECT_TRUE(worker().calls_of("sample").empty());
  worker().answer_next();
  EXPECT_EQ(worker().calls_of("sample").size(), 2U);
  worker().answer_all();
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, a).bytes), 0);
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, b).bytes), 0);
  EXPECT_EQ(plane().get_sampler(alice, first)->model_path, path);
}

TEST_F(Sampling, AFailedLoadFailsTheSamplesWithItsError) {
  const auto [s, run] = boot_with_session_and_run();
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "n")).path;
  advance(kUnusedAdapterKept + kSecond);  // the published version has left the worker
  worker().hold_answers(true);
  worker().fail_next("add_sampler", data_loss("adapter_model.safetensors is torn"));
  const SamplerId sampler = *try_sampler(s, alice, 0, "", path);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(failure(alice, sample(sampler, alice)).message.find("torn"), std::string::npos);
  }
  EXPECT_TRUE(worker().calls_of("sample").empty());
}

TEST_F(Sampling, ASparseSeqIdOnlyDetectsRepetitions) {
  boot();
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  const int64_t huge = 1'000'000'007LL * 1'000'000'000LL;
  const RequestId first = sample(sampler, alice, huge);
  EXPECT_EQ(sample(sampler, alice, huge), first);
  EXPECT_NE(sample(sampler, alice, 0), first);
  EXPECT_NE(sample(sampler, alice, std::nullopt), sample(sampler, alice, std::nullopt));
  EXPECT_EQ(worker().calls_of("sample").size(), 4U);
}

TEST_F(Sampling, ManySamplesRunAtOnceInNoOrder) {
  boot();
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  worker().hold_answers(true);
  for (int i = 0; i < 100; ++i) sample(sampler, alice, 99 - i);
  EXPECT_EQ(worker().held(), 100U);
}

TEST_F(Sampling, InvalidRequestsAreRefusedAtOnce) {
  boot();
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  const auto refused = [&](const std::function<void(Sample&)>& change) {
    Sample request = sample_request(sampler);
    change(request);
    const auto result = plane().sample(alice, request, no_trace);
    return !result.ok() && result.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](Sample&) {}));
  EXPECT_TRUE(refused([](Sample& r) { r.num_samples = 0; }));
  EXPECT_TRUE(refused([](Sample& r) { r.num_samples = 129; }));
  EXPECT_TRUE(refused([](Sample& r) { r.prompt_tokens.clear(); }));
  EXPECT_TRUE(refused([](Sample& r) { r.prompt_tokens[1] = -1; }));
  EXPECT_TRUE(refused([](Sample& r) { r.params.set_temperature(-0.1F); }));
  EXPECT_TRUE(refused([](Sample& r) { r.params.set_temperature(std::numeric_limits<float>::quiet_NaN()); }));
  EXPECT_TRUE(refused([](Sample& r) { r.params.set_temperature(std::numeric_limits<float>::infinity()); }));
  EXPECT_TRUE(refused([](Sample& r) { r.params.set_top_p(0); }));
  EXPECT_TRUE(refused([](Sample& r) { r.params.set_top_p(1.01F); }));
  EXPECT_TRUE(refused([](Sample& r) { r.params.set_top_k(0); }));
  EXPECT_FALSE(refused([](Sample& r) { r.params.set_top_k(-1); }));
  EXPECT_TRUE(refused([](Sample& r) { r.params.set_max_tokens(0); }));
  EXPECT_TRUE(refused([](Sample& r) { r.topk_prompt_logprobs = -1; }));
  EXPECT_TRUE(refused([](Sample& r) { r.topk_prompt_logprobs = 129; }));
  EXPECT_FALSE(refused([](Sample& r) { r.params.set_max_tokens(13); }));
  EXPECT_TRUE(refused([](Sample& r) { r.params.set_max_tokens(14); }));
  const auto with_stops = [&refused](const std::vector<std::string>& stops) {
    return refused([&stops](Sample& r) {
      for (const std::string& stop : stops) r.params.mutable_stop_strs()->add_values(stop);
    });
  };
  EXPECT_FALSE(with_stops(std::vector<std::string>(64, "a")));
  EXPECT_TRUE(with_stops(std::vector<std::string>(65, "a")));
  EXPECT_TRUE(with_stops({"a", ""}));
  EXPECT_FALSE(with_stops({std::string(1024, 'a')}));
  EXPECT_TRUE(with_stops({std::string(1025, 'a')}));
  EXPECT_TRUE(refused([](Sample& r) { r.params.mutable_stop_tokens()->mutable_values()->Resize(1025, 1); }));
  Sample request = sample_request(sampler);
  request.prompt_tokens.assign(16, 1);
  request.params.clear_max_tokens();
  EXPECT_EQ(plane().sample(alice, request, no_trace).error().message.substr(0, 13), "PromptTooLong");
}

// A prompt of four tokens.
TEST_F(Sampling, ScoresOfAPromptAreCheckedAndPassedOn) {
  boot();
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  Sample request = sample_request(sampler);
  request.prompt_tokens = {1, 2, 3, 4};
  request.prompt_logprobs = true;
  request.prompt_logprobs_last_n = 2;
  request.topk_sample_logprobs = 3;
  request.prompt_alt_tokens_k = 5;
  request.target_prompt_logprobs = PromptTargets{{7, -1, 8}, 3, 9, {0, 0, 2, 3}, {4, 5, 0}};
  const auto refusal = [&](const std::function<void(Sample&)>& change) {
    Sample changed = request;
    change(changed);
    const auto result = plane().sample(alice, changed, no_trace);
    return result.ok() ? "" : result.error().reason + ": " + result.error().message;
  };
  EXPECT_EQ(refusal([](Sample&) {}), "");
  const worker::v1::SampleRequest sent = worker().last_sample();
  EXPECT_EQ(sent.prompt_logprobs_last_n(), 2);
  EXPECT_EQ(sent.topk_logprobs(), 3);
  EXPECT_EQ(sent.prompt_alt_tokens(), 5);
  EXPECT_EQ(sent.prompt_targets().tokens().size(), 12U);
  EXPECT_EQ(sent.prompt_targets().columns(), 9);
  EXPECT_EQ(sent.prompt_targets().crow_indices().size(), 32U);
  EXPECT_EQ(sent.prompt_targets().col_indices().size(), 24U);

  const auto expect = [&](const std::string& field, const std::function<void(Sample&)>& change) {
    EXPECT_EQ(refusal(change).rfind("invalid_sample_request: " + field, 0), 0U) << refusal(change);
  };
  expect("topk_sample_logprobs", [](Sample& r) { r.topk_sample_logprobs = 129; });
  expect("prompt_alt_tokens_k", [](Sample& r) { r.prompt_alt_tokens_k = 129; });
  expect("prompt_logprobs_last_n", [](Sample& r) { r.prompt_logprobs_last_n = 4; });
  expect("prompt_logprobs_last_n", [](Sample& r) { r.prompt_logprobs = false; });
  expect("target_prompt_logprobs.shape", [](Sample& r) { r.target_prompt_logprobs->rows = 4; });
  expect("target_prompt_logprobs.sparse_crow", [](Sample& r) { r.target_prompt_logprobs->crow_indices[3] = 4; });
  expect("target_prompt_logprobs.sparse_crow", [](Sample& r) { r.target_prompt_logprobs->crow_indices[1] = 3; });
  expect("target_prompt_logprobs.sparse_crow", [](Sample& r) { r.target_prompt_logprobs->crow_indices.pop_back(); });
  expect("target_prompt_logprobs.sparse_col", [](Sample& r) { r.target_prompt_logprobs->col_indices[0] = 9; });
  expect("target_prompt_logprobs.sparse_col", [](Sample& r) { r.target_prompt_logprobs->col_indices.pop_back(); });
  expect("target_prompt_logprobs names no", [](Sample& r) { r.target_prompt_logprobs->tokens = {-1, -1, -1}; });
  expect("target_prompt_logprobs.data must have as many", [](Sample& r) {
    r.target_prompt_logprobs = PromptTargets{{7, 8}, 3, 1, {}, {}};
  });
  expect("target_prompt_logprobs.data must have at most", [](Sample& r) {
    r.target_prompt_logprobs = PromptTargets{std::vector<int32_t>(3 << 20, 1), 3, 1 << 20, {}, {}};
  });
}

TEST_F(Sampling, WhatAnAnswerCanTakeIsBoundedAndCharged) {
  config().limits.queued_bytes_per_user_max = 64 << 20;
  config().supported_models[0].max_model_len = 1 << 20;
  boot();
  worker().hold_answers(true);
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  Sample request = sample_request(sampler);
  request.num_samples = 16;
  request.params.set_max_tokens(1000);
  request.topk_sample_logprobs = 128;  // 16.5 MB, and 64 MiB have room for four
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(plane().sample(alice, request, no_trace).ok());
  EXPECT_EQ(plane().sample(alice, request, no_trace).error().code, ErrorCode::kResourceExhausted);
  request.params.set_max_tokens(10'000);
  EXPECT_NE(plane().sample(alice, request, no_trace).error().message.find("lower topk_sample_logprobs"),
            std::string::npos);
}

// The worker could not send it, after all its work.
TEST(SampleAnswer, IsNeverLargerThanAMessageCanCarry) {
  config::ModelConfig model;
  model.max_model_len = 1'000'000;
  Sample sample;
  sample.prompt_tokens.assign(100, 1);
  sample.num_samples = 128;
  sample.params.set_max_tokens(261'000);
  const auto fits = make_sample_request(model, UserId("alice"), sample);
  ASSERT_TRUE(fits.ok()) << fits.error().message;
  EXPECT_LE(answer_bytes_max(*fits), rpc::kValueBytesMax);
  sample.params.set_max_tokens(261'200);
  const auto refused = make_sample_request(model, UserId("alice"), sample);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("lower num_samples or max_tokens"), std::string::npos);
}

// The cost decides whose turn it is in the dispatch queue.
TEST(SampleCost, GrowsWithThePromptTokensThatAreScored) {
  config::ModelConfig model;
  model.max_model_len = 1000;
  Sample sample;
  sample.prompt_tokens.assign(100, 1);
  sample.params.set_max_tokens(1);
  const auto cost = [&](const std::function<void(Sample&)>& change) {
    Sample changed = sample;
    change(changed);
    const auto request = make_sample_request(model, UserId("alice"), changed);
    EXPECT_TRUE(request.ok());
    return sample_cost(model, *request);
  };
  EXPECT_EQ(cost([](Sample&) {}), 101);
  EXPECT_EQ(cost([](Sample& s) { s.prompt_logprobs = true; }), 401);
  EXPECT_EQ(cost([](Sample& s) { s.prompt_alt_tokens_k = 1; }), 401);
  EXPECT_EQ(cost([](Sample& s) { s.prompt_logprobs = true, s.prompt_logprobs_last_n = 9; }), 101 + 3 * 10);
  std::vector<int32_t> dense(198, -1);
  dense[2 * 79 + 1] = 5;  // position 80
  const auto with = [&](const PromptTargets& targets) {
    return cost([&](Sample& s) { s.target_prompt_logprobs = targets; });
  };
  EXPECT_EQ(with({dense, 99, 2, {}, {}}), 101 + 3 * 21);
  std::vector<int32_t> rows(100, 0);
  rows.back() = 1;  // only position 99
  EXPECT_EQ(with({{5}, 99, 1, rows, {0}}), 101 + 3 * 2);
}

TEST_F(Sampling, WithoutMaxTokensTheDefaultOrTheContextLengthApplies) {
  boot();
  Sample request = sample_request(*try_sampler(session(alice), alice, 0, model));
  request.params.clear_max_tokens();
  ASSERT_TRUE(plane().sample(alice, request, no_trace).ok());
  EXPECT_EQ(worker().last_sample().params().max_tokens(), 13);
  config().supported_models[0].default_max_tokens = 5;
  boot();
  request.sampler = *try_sampler(session(alice), alice, 0, model);
  ASSERT_TRUE(plane().sample(alice, request, no_trace).ok());
  EXPECT_EQ(worker().last_sample().params().max_tokens(), 5);
  request.prompt_tokens.assign(14, 1);
  ASSERT_TRUE(plane().sample(alice, request, no_trace).ok());
  EXPECT_EQ(worker().last_sample().params().max_tokens(), 2);
}

TEST_F(Sampling, CapabilitiesOfAModelAreEnforced) {
  config().supported_models[0].sampling = false;
  config::ModelConfig second = config().supported_models[0];
  second.model_name = "second";
  second.sampling = true;
  second.training = false;
  config().supported_models.push_back(second);
  const SessionId s = boot_with_session();
  EXPECT_EQ(try_sampler(s, alice, 0, model).error().reason, "sampling_disabled");
  const SamplerId sampler = *try_sampler(s, alice, 1, "second");
  value<ProtobufResult>(alice, sample(sampler, alice));
  EXPECT_EQ(worker(1).calls_of("sample").size(), 1U);
  CreateModel request = create_request(s);
  request.base_model = "second";
  EXPECT_EQ(plane().create_model(alice, request, no_trace).error().reason, "training_disabled");
}

}  // namespace
}  // namespace tuft::control
