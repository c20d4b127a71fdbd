// Compares the engine with the f64 reference model: log-probabilities and the gradients of every adapter matrix.
#include <cmath>

#include <gtest/gtest.h>

#include "engine/native/tests/reference_model.h"

namespace tuft::engine::native::test {
namespace {

struct Fixture {
  ModelSpec spec;
  MemoryTensors tensors;
  std::unique_ptr<Engine> engine;

  explicit Fixture(ModelSpec model, WeightsDtype dtype = WeightsDtype::kFloat32, int threads = 2)
      : spec(std::move(model)), tensors(spec, 7) {
    if (dtype == WeightsDtype::kBfloat16) tensors.round_to_bf16();
    NativeOptions options;
    options.threads = threads;
    options.weights_dtype = dtype;
    auto made = make_engine(spec, tensors, options);
    EXPECT_TRUE(made.ok()) << made.error().message;
    engine = std::move(made).value();
  }
};

Pack pack_of(const std::vector<int32_t>& tokens, const AdapterId& adapter, const std::vector<Target>& targets) {
  Pack pack;
  pack.tokens = tokens;
  pack.segments = {{adapter, 0, static_cast<int>(tokens.size())}};
  pack.targets = targets;
  return pack;
}

std::vector<Target> next_tokens(const std::vector<int32_t>& tokens) {
  std::vector<Target> targets;
  for (int row = 0; row + 1 < static_cast<int>(tokens.size()); ++row) {
    targets.push_back({row, tokens[static_cast<size_t>(row) + 1]});
    if (row % 5 == 2) targets.push_back({row, (tokens[static_cast<size_t>(row)] + 3) % 53});
  }
  return targets;
}

void expect_reference_logprobs(Fixture& fixture, int length) {
  const AdapterState state = random_adapter(fixture.spec, 5, 11);
  const AdapterId id("a");
  ASSERT_TRUE(fixture.engine->adapters().create(id, state).ok());
  const auto tokens = random_tokens(fixture.spec, length, 3);
  const auto targets = next_tokens(tokens);
  std::vector<float> logprobs(targets.size());
  ASSERT_TRUE(fixture.engine->training().forward(pack_of(tokens, id, targets), false, logprobs).ok());
  ReferenceModel reference(fixture.spec, fixture.tensors);
  reference.set_adapter(&state);
  const auto expected = reference.logprobs(tokens, targets);
  for (size_t i = 0; i < targets.size(); ++i) EXPECT_NEAR(logprobs[i], expected[i], 2e-4) << "target " << i;
}

// Returns log softmax(logits / temperature), from the reference's log-probabilities of the whole vocabulary.
std::vector<double> tempered(const ReferenceModel& reference, const std::vector<int32_t>& tokens,
                             const std::vector<Target>& targets, int vocab, double temperature) {
  std::vector<Target> all;
  for (const Target& target : targets) {
    for (int token = 0; token < vocab; ++token) all.push_back({target.row, token});
  }
  const std::vector<double> whole = reference.logprobs(tokens, all);
  std::vector<double> out;
  for (size_t i = 0; i < targets.size(); ++i) {
    const double* row = whole.data() + i * static_cast<size_t>(vocab);
    double sum = 0;
    for (int token = 0; token < vocab; ++token) sum += std::exp(row[token] / temperature);
    out.push_back(row[targets[i].token] / temperature - std::log(sum));
  }
  return out;
}

// Compares some entries of every matrix of the adapter with central differences of the f64 reference.
void expect_reference_gradients(Fixture& fixture, int length, float temperature = 1.0F) {
  AdapterState state = random_adapter(fixture.spec, 3, 5);
  const AdapterId id("a");
  ASSERT_TRUE(fixture.engine->adapters().create(id, state).ok());
  const auto tokens = random_tokens(fixture.spec, length, 9);
  const auto targets = next_tokens(tokens);
  std::vector<float> logprobs(targets.size());
  Numbers numbers(21);
  std::vector<float> weights = numbers.many(targets.size(), 1.0F);
  weights[1] = 0;
  weights[2] = 0;
  Pack pack = pack_of(tokens, id, targets);
  pack.segments[0].temperature = temperature;
  ASSERT_TRUE(fixture.engine->training().forward(pack, true, logprobs).ok());
  ASSERT_TRUE(fixture.engine->training().backward(weights).ok());
  const auto gradients = fixture.engine->adapters().gradients(id).value();
  ReferenceModel reference(fixture.spec, fixture.tensors);
  reference.set_adapter(&state);
  const auto logprobs_of_reference = [&] {
    return temperature == 1.0F ? reference.logprobs(tokens, targets)
                               : tempered(reference, tokens, targets, fixture.spec.vocab_size, temperature);
  };
  const auto expected_logprobs = logprobs_of_reference();
  for (size_t i = 0; i < targets.size(); ++i) EXPECT_NEAR(logprobs[i], expected_logprobs[i], 4e-4) << "target " << i;
  const auto loss = [&] {
    const auto values = logprobs_of_reference();
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
    return sum;
  };
  for (size_t t = 0; t < gradients.size(); ++t) {
    for (int kind = 0; kind < 2; ++kind) {
      auto& values = kind == 0 ? state.tensors[t].a : state.tensors[t].b;
      const auto& gradient = kind == 0 ? gradients[t].a : gradients[t].b;
      for (int probe = 0; probe < 3; ++probe) {
        const auto at = static_cast<size_t>(numbers.below(static_cast<int>(values.size())));
        const float original = values[at];
        values[at] = original + 0x1p-9F;
        const double high = loss();
        const double step_high = values[at];
        values[at] = original - 0x1p-9F;
        const double expected = (high - loss()) / (step_high - values[at]);
        values[at] = original;
        EXPECT_NEAR(gradient[at], expected, 2e-3 * std::abs(expected) + 2e-3)
            << module_name(gradients[t].module) << " of layer " << gradients[t].layer << (kind == 0 ? " A " : " B ")
            << at;
      }
    }
  }
}

TEST(Model, LlamaTiedThenLogprobsOfReference) {
  Fixture fixture(tiny_spec(Family::kLlama, true));
  expect_reference_logprobs(fixture, 37);
}

TEST(Model, LlamaUntiedThenLogprobsOfReference) {
  Fixture fixture(tiny_spec(Family::kLlama, false));
  expect_reference_logprobs(fixture, 70);
}

TEST(Model, Qwen2ThenLogprobsOfReference) {
  Fixture fixture(tiny_spec(Family::kQwen2, true));
  expect_reference_logprobs(fixture, 37);
}

TEST(Model, Qwen3ThenLogprobsOfReference) {
  Fixture fixture(tiny_spec(Family::kQwen3, false));
  expect_reference_logprobs(fixture, 130);
}

TEST(Model, AllBiasesThenLogprobsOfReference) {
  ModelSpec spec = tiny_spec(Family::kLlama, false);
  spec.qkv_bias = spec.o_bias = spec.mlp_bias = true;
  Fixture fixture(spec);
  expect_reference_logprobs(fixture, 20);
}

TEST(Model, OneTokenThenLogprobsOfReference) {
  Fixture fixture(tiny_spec(Family::kLlama, true));
  const std::vector<int32_t> tokens = {5};
  const std::vector<Target> targets = {{0, 7}};
  std::vector<float> logprobs(1);
  ASSERT_TRUE(fixture.engine->adapters().create(AdapterId("a"), random_adapter(fixture.spec, 1, 1)).ok());
  ASSERT_TRUE(fixture.engine->training().forward(pack_of(tokens, AdapterId(), targets), false, logprobs).ok());
  EXPECT_NEAR(logprobs[0], ReferenceModel(fixture.spec, fixture.tensors).logprobs(tokens, targets)[0], 1e-4);
}

TEST(Model, LinearRopeScalingThenLogprobsOfReference) {
  ModelSpec spec = tiny_spec(Family::kLlama, true);
  spec.rope_scaling.type = RopeScaling::Type::kLinear;
  spec.rope_scaling.factor = 4;
  Fixture fixture(spec);
  expect_reference_logprobs(fixture, 50);
}

TEST(Model, Llama3RopeScalingThenLogprobsOfReference) {
  ModelSpec spec = tiny_spec(Family::kLlama, true);
  spec.rope_scaling.type = RopeScaling::Type::kLlama3;
  spec.rope_scaling.factor = 8;
  spec.rope_scaling.original_max_position = 64;
  Fixture fixture(spec);
  expect_reference_logprobs(fixture, 80);
}

TEST(Model, YarnRopeScalingThenLogprobsOfReference) {
  ModelSpec spec = tiny_spec(Family::kQwen3, true);
  spec.rope_scaling.type = RopeScaling::Type::kYarn;
  spec.rope_scaling.factor = 4;
  spec.rope_scaling.original_max_position = 128;
  Fixture fixture(spec);
  expect_reference_logprobs(fixture, 80);
}

TEST(Model, Bf16WeightsThenLogprobsOfReference) {
  Fixture tied(tiny_spec(Family::kQwen3, true), WeightsDtype::kBfloat16);
  EXPECT_EQ(tied.engine->weights_dtype(), "bf16");
  expect_reference_logprobs(tied, 40);
  Fixture untied(tiny_spec(Family::kLlama, false), WeightsDtype::kBfloat16);
  expect_reference_logprobs(untied, 40);
}

TEST(Model, LlamaTiedThenGradientsOfReference) {
  Fixture fixture(tiny_spec(Family::kLlama, true));
  expect_reference_gradients(fixture, 29);
}

TEST(Model, LlamaUntiedThenGradientsOfReference) {
  Fixture fixture(tiny_spec(Family::kLlama, false));
  expect_reference_gradients(fixture, 61);
}

TEST(Model, Qwen2ThenGradientsOfReference) {
  Fixture fixture(tiny_spec(Family::kQwen2, false));
  expect_reference_gradients(fixture, 20);
}

TEST(Model, Qwen3ThenGradientsOfReference) {
  Fixture fixture(tiny_spec(Family::kQwen3, true));
  expect_reference_gradients(fixture, 33);
}

TEST(Model, TemperatureThenLogprobsAndGradientsOfTemperedLogits) {
  Fixture fixture(tiny_spec(Family::kQwen3, true));
  expect_reference_gradients(fixture, 21, 0.6F);
  Fixture hotter(tiny_spec(Family::kLlama, false));
  expect_reference_gradients(hotter, 21, 2.5F);
}

TEST(Model, Bf16WeightsThenGradientsOfReference) {
  Fixture fixture(tiny_spec(Family::kQwen3, true), WeightsDtype::kBfloat16);
  expect_reference_gradients(fixture, 18);
}

}  // namespace
}  // namespace tuft::engine::native::test
