// Tests the Engine port: tenants do not see each other, steps agree with passes, mistakes give errors.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/native/tests/reference_model.h"
#include "engine/sample/distribution.h"

namespace tuft::engine::native::test {
namespace {

std::unique_ptr<Engine> engine_with_options(const ModelSpec& spec, int threads = 2, int64_t kv_bytes_max = 0,
                                            WeightsDtype dtype = WeightsDtype::kFloat32) {
  NativeOptions options;
  options.threads = threads;
  options.kv_bytes_max = kv_bytes_max;
  options.weights_dtype = dtype;
  return make_engine(spec, MemoryTensors(spec, 7), options).value();
}

struct Work {
  AdapterId adapter;
  std::vector<int32_t> tokens;
};

Pack pack_of(const std::vector<Work>& works) {
  Pack pack;
  for (const Work& work : works) {
    const int begin = static_cast<int>(pack.tokens.size());
    pack.tokens.insert(pack.tokens.end(), work.tokens.begin(), work.tokens.end());
    pack.segments.push_back({work.adapter, begin, static_cast<int>(pack.tokens.size())});
    for (int i = begin; i + 1 < static_cast<int>(pack.tokens.size()); ++i) {
      pack.targets.push_back({i, pack.tokens[static_cast<size_t>(i) + 1]});
    }
  }
  return pack;
}

// Runs forward and backward of the loss -sum(logprob); returns the log-probabilities.
std::vector<float> train(Engine& engine, const Pack& pack) {
  std::vector<float> logprobs(pack.targets.size());
  EXPECT_TRUE(engine.training().forward(pack, true, logprobs).ok());
  EXPECT_TRUE(engine.training().backward(std::vector<float>(pack.targets.size(), -1.0F)).ok());
  return logprobs;
}

void expect_same(const std::vector<LoraTensor>& left, const std::vector<LoraTensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].a, right[i].a) << module_name(left[i].module);
    EXPECT_EQ(left[i].b, right[i].b) << module_name(left[i].module);
  }
}

std::vector<Work> three_tenants(Engine& engine, const ModelSpec& spec) {
  std::vector<Work> works;
  int seed = 1;
  for (const char* name : {"a", "b", "a", "c"}) {
    works.push_back({AdapterId(name), random_tokens(spec, 5 + 13 * seed, static_cast<uint64_t>(seed))});
    ++seed;
  }
  EXPECT_TRUE(engine.adapters().create(AdapterId("a"), random_adapter(spec, 3, 1)).ok());
  EXPECT_TRUE(engine.adapters().create(AdapterId("b"), random_adapter(spec, 8, 2)).ok());
  EXPECT_TRUE(engine.adapters().create(AdapterId("c"), random_adapter(spec, 17, 3)).ok());
  return works;
}

TEST(NativeEngine, SeveralTenantsInAPackThenSameBitsAsEachAlone) {
  const ModelSpec spec = tiny_spec(Family::kQwen3, true);
  const auto together = engine_with_options(spec);
  const auto alone = engine_with_options(spec);
  const auto works = three_tenants(*together, spec);
  three_tenants(*alone, spec);
  const auto packed = train(*together, pack_of(works));
  std::vector<float> single;
  for (const Work& work : works) {
    const auto logprobs = train(*alone, pack_of({work}));
    single.insert(single.end(), logprobs.begin(), logprobs.end());
  }
  EXPECT_EQ(packed, single);
  for (const char* name : {"a", "b", "c"}) {
    expect_same(together->adapters().gradients(AdapterId(name)).value(),
                alone->adapters().gradients(AdapterId(name)).value());
  }
}

TEST(NativeEngine, OneThreadOrTwoThenSameBits) {
  const ModelSpec spec = tiny_spec(Family::kLlama, false);
  const auto one = engine_with_options(spec, 1);
  const auto two = engine_with_options(spec, 2);
  const auto works = three_tenants(*one, spec);
  three_tenants(*two, spec);
  EXPECT_EQ(train(*one, pack_of(works)), train(*two, pack_of(works)));
  expect_same(one->adapters().gradients(AdapterId("c")).value(), two->adapters().gradients(AdapterId("c")).value());
}

TEST(NativeEngine, ActivationsOverTheLimitThenSameBits) {
  const ModelSpec spec = tiny_spec(Family::kQwen3, false);
  const auto kept = engine_with_options(spec);
  NativeOptions options;
  options.activation_bytes_max = 1;
  const auto twice = make_engine(spec, MemoryTensors(spec, 7), options).value();
  const auto works = three_tenants(*kept, spec);
  three_tenants(*twice, spec);
  EXPECT_EQ(train(*kept, pack_of(works)), train(*twice, pack_of(works)));
  for (const char* name : {"a", "b", "c"}) {
    expect_same(kept->adapters().gradients(AdapterId(name)).value(),
                twice->adapters().gradients(AdapterId(name)).value());
  }
}

TEST(NativeEngine, PassNeedsMoreMemoryThanIsFreeThenOnlyThatOneFails) {
  const ModelSpec spec = tiny_spec(Family::kQwen3, false);
  NativeOptions options;
  options.threads = 2;
  options.free_memory = [] { return int64_t{1} << 20; };
  const auto engine = make_engine(spec, MemoryTensors(spec, 7), options).value();
  const AdapterId a("a");
  ASSERT_TRUE(engine->adapters().create(a, random_adapter(spec, 3, 1)).ok());
  const Pack too_long = pack_of({{a, random_tokens(spec, 40'000, 1)}});  // more than 64 MiB
  std::vector<float> logprobs(too_long.targets.size());
  for (const bool keep : {false, true}) {
    const Status failed = engine->training().forward(too_long, keep, logprobs);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kResourceExhausted);
    EXPECT_EQ(failed.error().reason, "memory");
  }
  EXPECT_TRUE(std::isfinite(train(*engine, pack_of({{a, random_tokens(spec, 50, 2)}})).front()));
}

TEST(NativeEngine, NanInOneTenantThenOthersUntouched) {
  const ModelSpec spec = tiny_spec(Family::kLlama, true);
  const auto engine = engine_with_options(spec);
  const auto works = three_tenants(*engine, spec);
  const auto before = train(*engine, pack_of({works[1]}));
  const auto gradients = engine->adapters().gradients(AdapterId("b")).value();
  ASSERT_TRUE(engine->adapters().clear_gradients(AdapterId("b")).ok());
  AdapterState broken = random_adapter(spec, 3, 1);
  broken.tensors[2].b[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(engine->adapters().import_state(AdapterId("a"), broken).ok());
  const auto after = train(*engine, pack_of({works[0], works[1], works[2]}));
  EXPECT_TRUE(std::isnan(after[0]));
  const std::vector<float> mine(after.begin() + 17, after.begin() + 17 + static_cast<ptrdiff_t>(before.size()));
  EXPECT_EQ(mine, before);
  expect_same(engine->adapters().gradients(AdapterId("b")).value(), gradients);
  const auto report = engine->training().optim_step(AdapterId("a"), {}).value();
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(report.step, 0);
}

// Returns the log-probabilities of the tokens after the first, from steps that feed `piece` tokens each.
std::vector<float> stepped(Engine& engine, SequenceId sequence, const std::vector<int32_t>& tokens, size_t piece) {
  std::vector<float> result;
  Distribution distribution;
  for (size_t at = 0; at < tokens.size(); at += piece) {
    const auto part = std::span(tokens).subspan(at, std::min(piece, tokens.size() - at));
    const Feed feed{sequence, part, static_cast<int>(part.size())};
    EXPECT_TRUE(engine.decoding()
                    .step({&feed, 1}, for_each_row([&](size_t, int row, std::span<const float> logits) {
                            const size_t next = at + static_cast<size_t>(row) + 1;
                            if (next < tokens.size() && distribution.load(logits))
                              result.push_back(distribution.logprob(tokens[next]));
                          }))
                    .ok());
  }
  return result;
}

void expect_steps_equal_pass(WeightsDtype dtype) {
  for (const FamilyFacts& facts : families()) {
    const ModelSpec spec = tiny_spec(facts.family, facts.family != Family::kLlama);
    const auto engine = engine_with_options(spec, 2, 0, dtype);
    const auto works = three_tenants(*engine, spec);
    const Work& work = works[3];
    std::vector<float> logprobs(work.tokens.size() - 1);
    ASSERT_TRUE(engine->training().forward(pack_of({work}), false, logprobs).ok());
    for (const size_t piece : {size_t{1}, size_t{7}, work.tokens.size()}) {
      const auto sequence = engine->decoding().open(work.adapter, 0).value();
      EXPECT_EQ(stepped(*engine, sequence, work.tokens, piece), logprobs) << "pieces of " << piece;
      engine->decoding().close(sequence);
    }
  }
}

TEST(NativeEngine, StepsOfAnySizeThenSameBitsAsAPass) {
  expect_steps_equal_pass(WeightsDtype::kFloat32);
}

TEST(NativeEngine, StepsWithBf16WeightsThenSameBitsAsAPass) {
  expect_steps_equal_pass(WeightsDtype::kBfloat16);
}

TEST(NativeEngine, SequencesOfSeveralTenantsInAStepThenSameBitsAsAlone) {
  const ModelSpec spec = tiny_spec(Family::kQwen3, true);
  const auto engine = engine_with_options(spec);
  const auto works = three_tenants(*engine, spec);
  std::vector<std::vector<float>> alone(5);
  std::vector<std::vector<float>> together(5);
  std::vector<std::optional<AdapterId>> adapters = {AdapterId("b"), AdapterId("a"), std::nullopt, AdapterId("b"),
                                                    AdapterId("c")};
  const auto tokens = random_tokens(spec, 90, 44);
  const auto run = [&](std::vector<std::vector<float>>& to, const std::vector<size_t>& which) {
    std::vector<SequenceId> open;
    for (const size_t i : which) open.push_back(engine->decoding().open(adapters[i], 0).value());
    for (int round = 0; round < 3; ++round) {
      std::vector<Feed> feeds;
      for (size_t n = 0; n < which.size(); ++n) {
        const size_t length = round == 0 ? 10 + 15 * which[n] : 1;
        feeds.push_back({open[n], std::span(tokens).subspan(which[n] + static_cast<size_t>(round), length), 1});
      }
      size_t expected = 0;
      ASSERT_TRUE(engine->decoding()
                      .step(feeds, for_each_row([&](size_t feed, int row, std::span<const float> logits) {
                              EXPECT_EQ(feed, expected++);
                              EXPECT_EQ(row, static_cast<int>(feeds[feed].tokens.size()) - 1);
                              to[which[feed]].insert(to[which[feed]].end(), logits.begin(), logits.end());
                            }))
                      .ok());
    }
    for (const SequenceId id : open) engine->decoding().close(id);
  };
  run(together, {0, 1, 2, 3, 4});
  for (size_t i = 0; i < 5; ++i) run(alone, {i});
  EXPECT_EQ(together, alone);
}

TEST(NativeEngine, TenAdamStepsThenValuesOfTheFormula) {
  const ModelSpec spec = tiny_spec(Family::kLlama, true);
  const auto engine = engine_with_options(spec);
  const AdapterId id("a");
  ASSERT_TRUE(engine->adapters().create(id, random_adapter(spec, 4, 1)).ok());
  AdamParams params;
  params.learning_rate = 1e-2;
  params.weight_decay = 0.1;
  params.grad_clip_norm = 0.5;
  const Pack pack = pack_of({{id, random_tokens(spec, 20, 5)}});
  std::vector<double> value;
  std::vector<double> first;
  std::vector<double> second;
  const AdapterState start = engine->adapters().export_state(id, false).value();
  value.assign(start.tensors[4].b.begin(), start.tensors[4].b.end());
  first.resize(value.size());
  second.resize(value.size());
  for (int t = 1; t <= 10; ++t) {
    train(*engine, pack);
    const auto gradients = engine->adapters().gradients(id).value();
    double squares = 0;
    for (const LoraTensor& tensor : gradients) {
      for (const float g : tensor.a) squares += static_cast<double>(g) * g;
      for (const float g : tensor.b) squares += static_cast<double>(g) * g;
    }
    const double clip = std::min(1.0, params.grad_clip_norm / (std::sqrt(squares) + 1e-6));
    const auto report = engine->training().optim_step(id, params).value();
    EXPECT_EQ(report.step, t);
    EXPECT_NEAR(report.grad_norm, std::sqrt(squares), 1e-5 * report.grad_norm);
    EXPECT_EQ(report.clipped, clip < 1.0);
    const auto after = engine->adapters().export_state(id, false).value().tensors[4].b;
    for (size_t i = 0; i < value.size(); ++i) {
      const double g = gradients[4].b[i] * clip;
      first[i] = params.beta1 * first[i] + (1 - params.beta1) * g;
      second[i] = params.beta2 * second[i] + (1 - params.beta2) * g * g;
      const double denominator = std::sqrt(second[i]) / std::sqrt(1 - std::pow(params.beta2, t)) + params.eps;
      value[i] = value[i] * (1 - params.learning_rate * params.weight_decay) -
                 params.learning_rate / (1 - std::pow(params.beta1, t)) * first[i] / denominator;
      ASSERT_NEAR(after[i], value[i], 1e-5 * std::abs(value[i]) + 1e-7) << "step " << t;
    }
  }
}

TEST(NativeEngine, PeakOfTheProcessorIsKnown) {
  const auto engine = engine_with_options(tiny_spec(Family::kLlama, true));
  EXPECT_GT(engine->peak_flops(), 1e9);
  EXPECT_LT(engine->peak_flops(), 1e15);
}

TEST(NativeEngine, ExportAndImportThenTrainingContinuesWithTheSameBits) {
  const ModelSpec spec = tiny_spec(Family::kQwen2, false);
  const auto engine = engine_with_options(spec);
  const AdapterId id("a");
  const AdapterId copy("copy");
  ASSERT_TRUE(engine->adapters().create(id, random_adapter(spec, 4, 1)).ok());
  const auto tokens = random_tokens(spec, 20, 5);
  train(*engine, pack_of({{id, tokens}}));
  ASSERT_TRUE(engine->training().optim_step(id, {}).ok());
  ASSERT_TRUE(engine->adapters().create(copy, engine->adapters().export_state(id, true).value()).ok());
  for (const AdapterId& which : {id, copy}) {
    train(*engine, pack_of({{which, tokens}}));
    ASSERT_TRUE(engine->training().optim_step(which, {}).ok());
  }
  const auto left = engine->adapters().export_state(id, true).value();
  const auto right = engine->adapters().export_state(copy, true).value();
  expect_same(left.tensors, right.tensors);
  expect_same(left.moments.first, right.moments.first);
  expect_same(left.moments.second, right.moments.second);
  EXPECT_EQ(right.moments.step, 2);
}

TEST(NativeEngine, ModuleFlagsThenOnlyThoseTensorsAndNoGradientElsewhere) {
  const ModelSpec spec = tiny_spec(Family::kLlama, true);
  const auto engine = engine_with_options(spec);
  for (int flags = 1; flags < 8; ++flags) {
    LoraSpec lora;
    lora.rank = 2;
    lora.alpha = 4;
    lora.train_attn = (flags & 1) != 0;
    lora.train_mlp = (flags & 2) != 0;
    lora.train_unembed = (flags & 4) != 0;
    const AdapterId id(std::to_string(flags));
    ASSERT_TRUE(engine->adapters().create(id, make_adapter(spec, lora)).ok());
    train(*engine, pack_of({{id, random_tokens(spec, 9, 1)}}));
    const auto report = engine->training().optim_step(id, {}).value();
    EXPECT_TRUE(report.applied);
    EXPECT_GT(report.grad_norm, 0.0);
  }
  EXPECT_EQ(engine->adapters().size(), 7U);
}

TEST(NativeEngine, MistakesThenErrorsAndTheEngineContinues) {
  const ModelSpec spec = tiny_spec(Family::kLlama, true);
  const auto engine = engine_with_options(spec);
  const auto works = three_tenants(*engine, spec);
  std::vector<float> logprobs(1);
  const auto code = [&](const Pack& pack) { return engine->training().forward(pack, true, logprobs).error().code; };
  EXPECT_EQ(code({{1, 99}, {{AdapterId("a"), 0, 2}}, {{0, 1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, -1}, {{AdapterId("a"), 0, 2}}, {{0, 1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, 2}, {{AdapterId("x"), 0, 2}}, {{0, 1}}}), ErrorCode::kNotFound);
  EXPECT_EQ(code({{1, 2}, {{AdapterId("a"), 0, 1}}, {{0, 1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, 2}, {{AdapterId("a"), 0, 2}}, {{2, 1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, 2}, {{AdapterId("a"), 0, 2}}, {{0, 53}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, 2}, {{AdapterId("a"), 0, 2}}, {}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine->training().backward(logprobs).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(engine->adapters().create(AdapterId("a"), random_adapter(spec, 3, 1)).error().code,
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(
      engine->adapters().create(AdapterId("d"), random_adapter(tiny_spec(Family::kQwen3, true), 3, 1)).error().code,
      ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine->adapters().import_state(AdapterId("a"), random_adapter(spec, 4, 1)).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine->adapters().remove(AdapterId("x")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(engine->training().optim_step(AdapterId("x"), {}).error().code, ErrorCode::kNotFound);
  const auto sequence = engine->decoding().open(std::nullopt, 0).value();
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  const auto step = [&](std::vector<Feed> feeds) {
    return engine->decoding().step(feeds, for_each_row([](size_t, int, std::span<const float>) {})).error().code;
  };
  EXPECT_EQ(step({{sequence, std::span(tokens).first(2), 3}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(step({{sequence, std::span(tokens).first(1), 1}, {sequence, std::span(tokens).first(1), 1}}),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(step({{sequence + 9, std::span(tokens).first(1), 1}}), ErrorCode::kNotFound);
  EXPECT_EQ(engine->decoding().open(AdapterId("x"), 0).error().code, ErrorCode::kNotFound);
  train(*engine, pack_of(works));
}

TEST(NativeEngine, AdapterRemovedBetweenForwardAndBackwardThenFailedPrecondition) {
  const ModelSpec spec = tiny_spec(Family::kLlama, true);
  const auto engine = engine_with_options(spec);
  const auto works = three_tenants(*engine, spec);
  const Pack pack = pack_of(works);
  std::vector<float> logprobs(pack.targets.size());
  ASSERT_TRUE(engine->training().forward(pack, true, logprobs).ok());
  ASSERT_TRUE(engine->adapters().remove(AdapterId("b")).ok());
  EXPECT_EQ(engine->training().backward(logprobs).error().code, ErrorCode::kFailedPrecondition);
}

TEST(NativeEngine, AdapterTrainsThenMemoryOfGradientsAndMoments) {
  const ModelSpec spec = tiny_spec(Family::kLlama, true);
  const auto engine = engine_with_options(spec);
  const AdapterId id("a");
  const AdapterState state = random_adapter(spec, 4, 1);
  int64_t bytes = 0;
  for (const LoraTensor& tensor : state.tensors) bytes += static_cast<int64_t>(tensor.a.size() + tensor.b.size()) * 4;
  ASSERT_TRUE(engine->adapters().create(id, state).ok());
  EXPECT_EQ(engine->adapters().memory().weights, 2 * bytes) << "as they are, and scaled for products";
  EXPECT_EQ(engine->adapters().memory().gradients, 0);
  train(*engine, pack_of({{id, random_tokens(spec, 9, 1)}}));
  EXPECT_EQ(engine->adapters().memory().gradients, bytes);
  EXPECT_EQ(engine->adapters().memory().optimizer, 0);
  ASSERT_TRUE(engine->training().optim_step(id, {}).ok());
  EXPECT_EQ(engine->adapters().memory().optimizer, 2 * bytes);
  ASSERT_TRUE(engine->adapters().remove(id).ok());
  EXPECT_EQ(engine->adapters().memory().weights, 0);
}

TEST(NativeEngine, TensorMissingOrOfAnotherShapeThenLoadFails) {
  const ModelSpec spec = tiny_spec(Family::kLlama, true);
  MemoryTensors missing(spec, 1);
  missing.remove("model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(make_engine(spec, missing, {}).error().code, ErrorCode::kNotFound);
  ModelSpec other = spec;
  other.intermediate_size = 60;
  EXPECT_EQ(make_engine(other, MemoryTensors(spec, 1), {}).error().code, ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace tuft::engine::native::test
