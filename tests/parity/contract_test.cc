// What engine.h promises of adapters, gradients and steps of the optimizer, for every back end.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/sample/distribution.h"
#include "support.h"

namespace tuft::parity {
namespace {

using engine::AdapterId;
using engine::AdapterState;

class EngineContract : public ParityTest {
 protected:
  void SetUp() override {
    ParityTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(engine_->adapters().create(other_, random_adapter(7, 1)).ok());
    ASSERT_TRUE(engine_->adapters().create(third_, random_adapter(7, 2)).ok());
  }

  AdapterState random_adapter(int rank, uint64_t seed) const {
    engine::LoraSpec spec;
    spec.rank = rank;
    spec.alpha = 16;
    spec.seed = seed;
    AdapterState state = engine::make_adapter(reference_->model(), spec);
    for (engine::LoraTensor& tensor : state.tensors) {
      for (size_t i = 0; i < tensor.b.size(); ++i) tensor.b[i] = 0.05F * std::sin(static_cast<float>(i + seed));
    }
    return state;
  }
  engine::Pack pack_of(const std::vector<std::pair<AdapterId, size_t>>& work) const {
    engine::Pack pack;
    for (const auto& [id, index] : work) append(pack, id, index, reference_->data()[index].tokens.size());
    return pack;
  }
  // Appends the first `count` tokens of a datum.
  void append(engine::Pack& pack, const AdapterId& id, size_t index, size_t count) const {
    const ReferenceDatum& datum = reference_->data()[index];
    const int begin = static_cast<int>(pack.tokens.size());
    for (size_t row = 0; row < count; ++row) {
      pack.tokens.push_back(datum.tokens[row]);
      pack.targets.push_back({begin + static_cast<int>(row), static_cast<int32_t>(datum.targets[row])});
    }
    pack.segments.push_back({id, begin, static_cast<int>(pack.tokens.size())});
  }
  // Forward and backward of -sum(logprob).
  std::vector<float> train(const engine::Pack& pack) {
    return train(pack, std::vector<float>(pack.targets.size(), -1.0F));
  }
  std::vector<float> train(const engine::Pack& pack, const std::vector<float>& dloss) {
    std::vector<float> logprobs(pack.targets.size());
    const Status forward = engine_->training().forward(pack, true, logprobs);
    EXPECT_TRUE(forward.ok()) << forward.error().message;
    const Status backward = engine_->training().backward(dloss);
    EXPECT_TRUE(backward.ok()) << backward.error().message;
    return logprobs;
  }
  std::vector<engine::LoraTensor> gradients(const AdapterId& id) { return engine_->adapters().gradients(id).value(); }
  testing::AssertionResult near_gradients(const std::vector<engine::LoraTensor>& got,
                                          const std::vector<engine::LoraTensor>& want) const {
    return back_end().bitwise ? near_lora(got, want, 0, 0) : near_lora(got, want, 1e-6, 1e-4, 5e-6);
  }

  const AdapterId other_{"other"};
  const AdapterId third_{"third"};
};

TEST_P(EngineContract, ANumberThatIsNoneInOneTenantLeavesTheOthersAlone) {
  const engine::Pack alone = pack_of({{other_, 2}});
  const auto logprobs = train(alone);
  const auto before = gradients(other_);
  ASSERT_TRUE(engine_->adapters().clear_gradients(other_).ok());
  AdapterState broken = random_adapter(7, 2);
  broken.tensors[2].b[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(engine_->adapters().import_state(third_, broken).ok());
  // Shapes alike, so that a back end that computes adapters together does so here.
  const engine::Pack together = pack_of({{third_, 2}, {other_, 2}, {third_, 3}});
  const auto mixed = train(together);
  EXPECT_TRUE(std::isnan(mixed[1]));
  EXPECT_TRUE(agree(back_end(), std::span(mixed).subspan(logprobs.size(), logprobs.size()), logprobs));
  EXPECT_TRUE(near_gradients(gradients(other_), before));
  const std::vector<engine::AdapterStep> steps = {{third_, {}}, {other_, {}}};
  const auto reports = engine_->training().optim_steps(steps);
  ASSERT_TRUE(reports[0].ok() && reports[1].ok());
  EXPECT_FALSE(reports[0]->applied);
  EXPECT_EQ(reports[0]->step, 0);
  EXPECT_TRUE(reports[1]->applied);
  EXPECT_EQ(reports[1]->step, 1);
}

TEST_P(EngineContract, AdaptersOfOneShapeInAPassGetWhatEachGetsAlone) {
  std::vector<std::pair<AdapterId, size_t>> work;
  for (int i = 0; i < 6; ++i) {
    const AdapterId id("many" + std::to_string(i));
    ASSERT_TRUE(engine_->adapters().create(id, random_adapter(i < 4 ? 4 : 3, 50 + static_cast<uint64_t>(i))).ok());
    work.emplace_back(id, 1 + static_cast<size_t>(i) % 4);
  }
  work.emplace_back(AdapterId(), 2);  // the base model
  work.emplace_back(work[0].first, 3);
  const auto together = train(pack_of(work));
  size_t next = 0;
  std::vector<std::vector<engine::LoraTensor>> packed;
  for (int i = 0; i < 6; ++i) {
    packed.push_back(gradients(work[static_cast<size_t>(i)].first));
    ASSERT_TRUE(engine_->adapters().clear_gradients(work[static_cast<size_t>(i)].first).ok());
  }
  for (const auto& one : work) {
    const auto alone = train(pack_of({one}));
    EXPECT_TRUE(agree(back_end(), std::span(together).subspan(next, alone.size()), alone));
    next += alone.size();
  }
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(near_gradients(packed[i], gradients(work[i].first))) << "adapter " << i;
}

// They differ in their modules and in alpha; their segments lie apart, and some have one token. The losses of two
// adapters have no slope.
TEST_P(EngineContract, AdaptersOfAnyKindInAPassGetWhatEachGetsAlone) {
  std::vector<AdapterId> ids = {AdapterId()};
  for (int kind = 0; kind < 14; ++kind) {
    const int flags = 1 + kind % 7;
    engine::LoraSpec spec;
    spec.rank = kind < 10 ? 4 : 3;
    spec.alpha = static_cast<float>(2 + 3 * kind);
    spec.train_attn = (flags & 1) != 0;
    spec.train_mlp = (flags & 2) != 0;
    spec.train_unembed = (flags & 4) != 0;
    AdapterState state = engine::make_adapter(reference_->model(), spec);
    for (engine::LoraTensor& tensor : state.tensors) {
      for (size_t i = 0; i < tensor.b.size(); ++i) tensor.b[i] = 0.05F * std::sin(static_cast<float>(i) + spec.alpha);
    }
    ids.emplace_back("kind" + std::to_string(kind));
    ASSERT_TRUE(engine_->adapters().create(ids.back(), state).ok());
  }
  const auto slope = [](size_t kind) { return kind == 3 || kind == 7 ? 0.0F : -1.0F; };
  const auto append_own = [&](engine::Pack& pack, std::vector<float>& dloss, size_t kind, size_t round) {
    const size_t index = 1 + (kind + round) % 4;
    append(pack, ids[kind], index, (kind + round) % 3 == 0 ? 1 : reference_->data()[index].tokens.size());
    dloss.resize(pack.targets.size(), slope(kind));
  };
  engine::Pack all;
  std::vector<float> dloss;
  for (size_t round = 0; round < 2; ++round) {
    for (size_t kind = 0; kind < ids.size(); ++kind) append_own(all, dloss, kind, round);
  }
  const auto together = train(all, dloss);
  std::vector<std::vector<engine::LoraTensor>> packed;
  for (size_t kind = 1; kind < ids.size(); ++kind) {
    packed.push_back(gradients(ids[kind]));
    ASSERT_TRUE(engine_->adapters().clear_gradients(ids[kind]).ok());
  }
  size_t next = 0;
  for (size_t round = 0; round < 2; ++round) {
    for (size_t kind = 0; kind < ids.size(); ++kind) {
      engine::Pack own;
      std::vector<float> own_dloss;
      append_own(own, own_dloss, kind, round);
      const auto alone = train(own, own_dloss);
      EXPECT_TRUE(agree(back_end(), std::span(together).subspan(next, alone.size()), alone)) << "kind " << kind;
      next += alone.size();
    }
  }
  for (size_t kind = 1; kind < ids.size(); ++kind) {
    EXPECT_TRUE(near_gradients(packed[kind - 1], gradients(ids[kind]))) << "kind " << kind;
  }
}

TEST_P(EngineContract, TemperatureDividesTheLogits) {
  const auto& tokens = reference_->data()[2].tokens;
  const int vocab = reference_->model().vocab_size;
  std::vector<float> logits = all_logits(*engine_, adapter_, tokens, tokens.size());
  engine::Pack pack = pack_of({{adapter_, 2}, {adapter_, 2}});
  pack.segments[1].temperature = 0.7F;
  std::vector<float> logprobs(pack.targets.size());
  ASSERT_TRUE(engine_->training().forward(pack, false, logprobs).ok());
  engine::Distribution distribution;
  for (size_t row = 0; row < tokens.size(); ++row) {
    const std::span<float> one(logits.data() + row * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
    ASSERT_TRUE(distribution.load(one));
    EXPECT_NEAR(logprobs[row], distribution.logprob(pack.targets[row].token), 1e-5);
    for (float& value : one) value /= 0.7F;
    ASSERT_TRUE(distribution.load(one));
    EXPECT_NEAR(logprobs[tokens.size() + row], distribution.logprob(pack.targets[row].token), 2e-5);
  }
  pack.segments[0].temperature = 0;
  EXPECT_EQ(engine_->training().forward(pack, false, logprobs).error().code, ErrorCode::kInvalidArgument);
}

// d/dT of nothing: the gradient with a temperature is that of the loss with it, by central differences of one entry.
TEST_P(EngineContract, TemperatureIsInTheGradient) {
  engine::Pack pack = pack_of({{other_, 2}});
  pack.segments[0].temperature = 0.5F;
  train(pack);
  const auto got = gradients(other_);
  const AdapterState state = engine_->adapters().export_state(other_, false).value();
  const size_t tensor = state.tensors.size() / 2;
  constexpr float kStep = 2e-2F;
  const auto loss = [&](float change) {
    AdapterState moved = state;
    moved.tensors[tensor].b[1] += change;
    EXPECT_TRUE(engine_->adapters().import_state(other_, moved).ok());
    std::vector<float> logprobs(pack.targets.size());
    EXPECT_TRUE(engine_->training().forward(pack, false, logprobs).ok());
    double sum = 0;
    for (const float value : logprobs) sum -= static_cast<double>(value);
    return sum;
  };
  const double want = (loss(kStep) - loss(-kStep)) / (2.0 * kStep);
  EXPECT_NEAR(got[tensor].b[1], want, 0.02 * std::abs(want) + 2e-3);
}

TEST_P(EngineContract, MarkedGradientsComeBack) {
  const engine::Pack pack = pack_of({{other_, 2}});
  EXPECT_EQ(engine_->adapters().restore_gradients(other_).error().code, ErrorCode::kFailedPrecondition);
  ASSERT_TRUE(engine_->adapters().mark_gradients(other_).ok());
  train(pack);
  const auto once = gradients(other_);
  ASSERT_TRUE(engine_->adapters().restore_gradients(other_).ok());
  const auto restored = gradients(other_);
  for (const auto& tensor : restored) {
    for (const float value : tensor.a) ASSERT_EQ(value, 0.0F);
    for (const float value : tensor.b) ASSERT_EQ(value, 0.0F);
  }
  train(pack);
  ASSERT_TRUE(engine_->adapters().mark_gradients(other_).ok());
  train(pack);
  ASSERT_TRUE(engine_->adapters().restore_gradients(other_).ok());
  ASSERT_TRUE(engine_->adapters().restore_gradients(other_).ok()) << "the mark stays";
  EXPECT_TRUE(near_lora(gradients(other_), once, 0, 0));
  ASSERT_TRUE(engine_->training().optim_step(other_, {}).ok());
  EXPECT_FALSE(engine_->adapters().restore_gradients(other_).ok()) << "a step ends it";
}

TEST_P(EngineContract, TakenOutWithItsGradientAndPutBackItGoesOnBitForBit) {
  const engine::Pack pack = pack_of({{other_, 2}});
  train(pack);
  ASSERT_TRUE(engine_->training().optim_step(other_, {}).ok());
  train(pack);
  const auto before = gradients(other_);
  const AdapterState whole = engine_->adapters().export_state(other_, true).value();
  auto taken = engine_->adapters().take(other_);
  ASSERT_TRUE(taken.ok());
  EXPECT_FALSE(engine_->adapters().contains(other_));
  ASSERT_TRUE(engine_->adapters().create(other_, *taken).ok());
  EXPECT_TRUE(near_lora(gradients(other_), before, 0, 0));
  const AdapterState back = engine_->adapters().export_state(other_, true).value();
  EXPECT_TRUE(near_lora(back.tensors, whole.tensors, 0, 0));
  EXPECT_TRUE(near_lora(back.moments.first, whole.moments.first, 0, 0));
  EXPECT_TRUE(near_lora(back.moments.second, whole.moments.second, 0, 0));
  EXPECT_EQ(back.moments.step, 1);
}

TEST_P(EngineContract, ACloneKeepsTheWeightsThatWereWhenItsSourceGoesOn) {
  const AdapterId copy("copy");
  ASSERT_TRUE(engine_->adapters().clone(other_, copy).ok());
  const auto& tokens = reference_->data()[1].tokens;
  const auto before = all_logits(*engine_, other_, tokens, tokens.size());
  train(pack_of({{other_, 2}}));
  ASSERT_TRUE(engine_->training().optim_step(other_, {}).ok());
  EXPECT_TRUE(same_all(all_logits(*engine_, copy, tokens, tokens.size()), before));
  EXPECT_FALSE(near_all(all_logits(*engine_, other_, tokens, tokens.size()), before, 1e-6));
  EXPECT_EQ(engine_->adapters().clone(other_, copy).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(engine_->adapters().clone(AdapterId("nobody"), AdapterId("new")).error().code, ErrorCode::kNotFound);
}

TEST_P(EngineContract, AnAdapterNeverTakesMoreThanItSays) {
  for (const AdapterId& id : {adapter_, third_}) ASSERT_TRUE(engine_->adapters().remove(id).ok());
  const engine::LoraSpec spec = engine_->adapters().export_state(other_, false).value().spec;
  const auto sum = [&] {
    const engine::AdapterMemory memory = engine_->adapters().memory();
    return memory.weights + memory.gradients + memory.optimizer;
  };
  EXPECT_LE(sum(), engine_->adapters().bytes_of(spec, false));
  train(pack_of({{other_, 2}}));
  ASSERT_TRUE(engine_->training().optim_step(other_, {}).ok());
  train(pack_of({{other_, 2}}));
  ASSERT_TRUE(engine_->adapters().mark_gradients(other_).ok());
  EXPECT_GT(sum(), engine_->adapters().bytes_of(spec, false));
  EXPECT_LE(sum(), engine_->adapters().bytes_of(spec, true));
}

TEST_P(EngineContract, SeveralStepsTogetherAreWhatEachIsAlone) {
  const AdapterId copy("copy");
  ASSERT_TRUE(engine_->adapters().create(copy, random_adapter(7, 1)).ok());
  train(pack_of({{other_, 2}}));
  train(pack_of({{copy, 2}}));
  train(pack_of({{third_, 3}}));
  engine::AdamParams params;
  params.learning_rate = 1e-2;
  params.weight_decay = 0.1;
  params.grad_clip_norm = 0.01;
  const std::vector<engine::AdapterStep> steps = {
      {third_, {}}, {AdapterId("nobody"), {}}, {other_, params}, {other_, {}}};
  const auto reports = engine_->training().optim_steps(steps);
  ASSERT_EQ(reports.size(), 4U);
  EXPECT_TRUE(reports[0].ok());
  EXPECT_EQ(reports[1].error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(reports[2].ok());
  EXPECT_TRUE(reports[2]->clipped);
  EXPECT_EQ(reports[3].error().code, ErrorCode::kInvalidArgument) << "twice";
  const auto alone = engine_->training().optim_step(copy, params);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->grad_norm, reports[2]->grad_norm);
  EXPECT_GT(alone->parameters, 0);
  EXPECT_TRUE(near_lora(engine_->adapters().export_state(copy, false).value().tensors,
                        engine_->adapters().export_state(other_, false).value().tensors, 0, 0));
}

TEST_P(EngineContract, AStepWithoutAGradientIsNone) {
  train(pack_of({{other_, 2}}));
  ASSERT_TRUE(engine_->training().optim_step(other_, {}).ok());  // from here on there are moments
  train(pack_of({{third_, 2}}));
  ASSERT_TRUE(engine_->adapters().clear_gradients(third_).ok());
  engine::AdamParams params;
  params.weight_decay = 0.1;
  for (const auto& [id, steps] : {std::pair(other_, 1), std::pair(third_, 0)}) {
    const AdapterState before = engine_->adapters().export_state(id, true).value();
    const auto report = engine_->training().optim_step(id, params);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->step, steps);
    EXPECT_EQ(report->grad_norm, 0.0);
    EXPECT_FALSE(report->applied);
    const AdapterState after = engine_->adapters().export_state(id, true).value();
    EXPECT_TRUE(near_lora(after.tensors, before.tensors, 0, 0));
    EXPECT_TRUE(near_lora(after.moments.first, before.moments.first, 0, 0));
    EXPECT_TRUE(near_lora(after.moments.second, before.moments.second, 0, 0));
    EXPECT_EQ(after.moments.step, steps);
  }
  AdapterState broken = random_adapter(7, 3);
  broken.tensors[0].a[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(engine_->adapters().import_state(third_, broken).ok());
  EXPECT_TRUE(engine_->training().optim_step(third_, params)->finite) << "no step broke it";
}

TEST_P(EngineContract, AStepThatDividesByZeroSaysSoAndOthersAreUntouched) {
  const AdapterId fresh("fresh");
  AdapterState state = random_adapter(7, 3);
  for (engine::LoraTensor& tensor : state.tensors) std::fill(tensor.b.begin(), tensor.b.end(), 0.0F);  // A has no slope
  ASSERT_TRUE(engine_->adapters().create(fresh, state).ok());
  train(pack_of({{fresh, 2}, {other_, 2}}));
  engine::AdamParams params;
  params.eps = 0;
  const std::vector<engine::AdapterStep> steps = {{fresh, params}, {other_, {}}};
  const auto reports = engine_->training().optim_steps(steps);
  ASSERT_TRUE(reports[0].ok() && reports[1].ok());
  EXPECT_TRUE(reports[0]->applied) << "the gradient was finite";
  EXPECT_FALSE(reports[0]->finite);
  EXPECT_TRUE(reports[1]->finite);
}

// Not one that waits: import_adapter() starts with none.
TEST_P(EngineContract, AStateWithAGradientThenOnlyANewAdapterTakesIt) {
  train(pack_of({{other_, 2}}));
  const AdapterState taken = engine_->adapters().take(other_).value();
  ASSERT_FALSE(taken.gradients.empty());
  EXPECT_FALSE(taken.has_optimizer) << "no step has made moments";
  ASSERT_TRUE(engine_->adapters().create(other_, taken).ok());
  EXPECT_TRUE(near_lora(gradients(other_), taken.gradients, 0, 0));
  ASSERT_TRUE(engine_->adapters().import_state(other_, taken).ok());
  EXPECT_EQ(engine_->training().optim_step(other_, {})->step, 0);
}

TEST_P(EngineContract, SomeModulesOnlyThenOnlyTheyTrain) {
  for (int flags = 1; flags < 8; ++flags) {
    engine::LoraSpec spec;
    spec.rank = 2;
    spec.alpha = 4;
    spec.train_attn = (flags & 1) != 0;
    spec.train_mlp = (flags & 2) != 0;
    spec.train_unembed = (flags & 4) != 0;
    const AdapterId id(std::to_string(flags));
    ASSERT_TRUE(engine_->adapters().create(id, engine::make_adapter(reference_->model(), spec)).ok());
    train(pack_of({{id, 2}, {other_, 1}}));
    const auto report = engine_->training().optim_step(id, {});
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->applied);
    EXPECT_GT(report->grad_norm, 0.0) << flags;
  }
}

TEST_P(EngineContract, MistakesAreErrorsAndTheEngineGoesOn) {
  const engine::Pack good = pack_of({{other_, 1}});
  const auto expected = train(good);
  std::vector<float> logprobs(1);
  const int vocab = reference_->model().vocab_size;
  const auto code = [&](const engine::Pack& pack) {
    return engine_->training().forward(pack, true, logprobs).error().code;
  };
  EXPECT_EQ(code({{1, vocab}, {{other_, 0, 2}}, {{0, 1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, -1}, {{other_, 0, 2}}, {{0, 1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, 2}, {{AdapterId("x"), 0, 2}}, {{0, 1}}}), ErrorCode::kNotFound);
  EXPECT_EQ(code({{1, 2}, {{other_, 0, 1}}, {{0, 1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, 2}, {{other_, 0, 2}}, {{2, 1}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({{1, 2}, {{other_, 0, 2}}, {{0, vocab}}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine_->training().backward(logprobs).error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(engine_->adapters().create(other_, random_adapter(7, 1)).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(engine_->adapters().import_state(other_, random_adapter(4, 1)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine_->adapters().remove(AdapterId("x")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(engine_->training().optim_step(AdapterId("x"), {}).error().code, ErrorCode::kNotFound);
  std::vector<float> kept(good.targets.size());
  ASSERT_TRUE(engine_->training().forward(pack_of({{other_, 1}}), true, kept).ok());
  ASSERT_TRUE(engine_->adapters().remove(other_).ok());
  EXPECT_EQ(engine_->training().backward(kept).error().code, ErrorCode::kFailedPrecondition);
  ASSERT_TRUE(engine_->adapters().create(other_, random_adapter(7, 1)).ok());
  EXPECT_TRUE(same_all(train(good), expected));
}

INSTANTIATE_TEST_SUITE_P(All, EngineContract,
                         testing::Combine(testing::ValuesIn(back_ends()),
                                          testing::Values("qwen3_untied", "llama_linear_bias")),
                         parity_name);

}  // namespace
}  // namespace tuft::parity
