// Tests the training scheduler with this engine: results are the same bits in any shared pass and any split.
#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "engine/native/tests/reference_model.h"
#include "engine/train/scheduler.h"

namespace tuft::engine::native::test {
namespace {

std::unique_ptr<Engine> engine_of(const ModelSpec& spec, int adapters) {
  NativeOptions options;
  options.threads = 2;
  auto engine = make_engine(spec, MemoryTensors(spec, 7), options).value();
  for (int i = 0; i < adapters; ++i) {
    EXPECT_TRUE(
        engine->adapters()
            .create(AdapterId(std::to_string(i)), random_adapter(spec, 1 + 5 * i % 17, static_cast<uint64_t>(i)))
            .ok());
  }
  return engine;
}

TrainRequest random_request(const ModelSpec& spec, int adapter, Numbers& numbers, uint64_t seed) {
  TrainRequest request;
  request.adapter = AdapterId(std::to_string(adapter));
  request.loss_fn = numbers.below(2) == 0 ? "cross_entropy" : "importance_sampling";
  request.backward = numbers.below(5) != 0;
  const int datums = 1 + numbers.below(5);
  for (int i = 0; i < datums; ++i) {
    const int length = 1 + numbers.below(40);
    const auto tokens = random_tokens(spec, length + 1, seed * 100 + static_cast<uint64_t>(i));
    Datum& datum = request.data.emplace_back();
    datum.tokens.assign(tokens.begin(), tokens.end() - 1);
    const std::vector<int64_t> shape = {length};
    datum.loss_inputs["target_tokens"] = {shape, std::vector<int64_t>(tokens.begin() + 1, tokens.end())};
    const std::vector<float> values = numbers.many(static_cast<size_t>(length), 1.0F);
    if (request.loss_fn == "cross_entropy") {
      datum.loss_inputs["weights"] = {shape, values};
    } else {
      datum.loss_inputs["advantages"] = {shape, values};
      datum.loss_inputs["logprobs"] = {shape, std::vector<float>(static_cast<size_t>(length), -4.0F)};
    }
  }
  return request;
}

struct Gathered {
  std::vector<std::vector<LossTensor>> logprobs;  // of each request
  std::vector<double> losses;
};

// Returns the results in the order of `requests`. `budget` 0: one request after the other, datum by datum.
Gathered run(Engine& engine, const std::vector<TrainRequest>& requests, int budget) {
  Gathered out;
  out.logprobs.resize(requests.size());
  out.losses.resize(requests.size());
  const auto scheduler = make_train_scheduler(engine.model(), engine.adapters(), engine.training(),
                                              {.batch_tokens = std::max(1, budget), .tokens_max = 0});
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(scheduler
                    ->submit(requests[i],
                             [&out, i](Result<TrainOutput> result) {
                               ASSERT_TRUE(result.ok()) << result.error().message;
                               out.losses[i] = result->metrics.at("loss:sum");
                               out.logprobs[i] = std::move(result->logprobs);
                             })
                    .ok());
    while (budget == 0 && !scheduler->idle()) scheduler->step();
  }
  while (!scheduler->idle()) scheduler->step();
  return out;
}

void expect_same(const std::vector<LoraTensor>& left, const std::vector<LoraTensor>& right, const std::string& what) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].a, right[i].a) << what << " " << module_name(left[i].module);
    EXPECT_EQ(left[i].b, right[i].b) << what << " " << module_name(left[i].module);
  }
}

void expect_same(const Gathered& left, const Gathered& right, size_t index) {
  EXPECT_EQ(left.losses[index], right.losses[index]) << "request " << index;
  ASSERT_EQ(left.logprobs[index].size(), right.logprobs[index].size());
  for (size_t d = 0; d < left.logprobs[index].size(); ++d) {
    EXPECT_EQ(left.logprobs[index][d].values, right.logprobs[index][d].values) << "request " << index << " datum " << d;
  }
}

TEST(TrainSchedulerOnNative, RandomPassesGiveTheBitsOfOneDatumAtATime) {
  const ModelSpec spec = tiny_spec(Family::kQwen3, true);
  constexpr int kAdapters = 5;
  for (const uint64_t seed : {1U, 2U, 3U}) {
    Numbers numbers(seed);
    std::vector<TrainRequest> requests;
    for (uint64_t i = 0; i < 12; ++i) {
      requests.push_back(random_request(spec, numbers.below(kAdapters), numbers, seed * 50 + i));
    }
    const auto alone = engine_of(spec, kAdapters);
    const Gathered expected = run(*alone, requests, 0);
    for (const int budget : {37, 128, 4096}) {
      const auto together = engine_of(spec, kAdapters);
      const Gathered got = run(*together, requests, budget);
      for (size_t i = 0; i < requests.size(); ++i) expect_same(got, expected, i);
      for (int i = 0; i < kAdapters; ++i) {
        const AdapterId id(std::to_string(i));
        expect_same(together->adapters().gradients(id).value(), alone->adapters().gradients(id).value(),
                    "adapter " + id.str() + ", budget " + std::to_string(budget));
      }
    }
  }
}

TEST(TrainSchedulerOnNative, NanInOneTenantThenOnlyItsStepIsSkipped) {
  const ModelSpec spec = tiny_spec(Family::kLlama, false);
  Numbers numbers(4);
  std::vector<TrainRequest> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(random_request(spec, i, numbers, static_cast<uint64_t>(i)));
    requests.back().backward = true;
  }
  const auto healthy = engine_of(spec, 3);
  const auto broken = engine_of(spec, 3);
  AdapterState state = random_adapter(spec, 6, 1);
  state.tensors[1].b[0] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(broken->adapters().import_state(AdapterId("1"), state).ok());
  const Gathered expected = run(*healthy, requests, 4096);
  const Gathered got = run(*broken, requests, 4096);
  EXPECT_FALSE(std::isfinite(got.losses[1]));
  for (const int other : {0, 2}) {
    const AdapterId id(std::to_string(other));
    expect_same(got, expected, static_cast<size_t>(other));
    expect_same(broken->adapters().gradients(id).value(), healthy->adapters().gradients(id).value(), id.str());
    EXPECT_TRUE(broken->training().optim_step(id, {}).value().applied);
  }
  EXPECT_FALSE(broken->training().optim_step(AdapterId("1"), {}).value().applied);
}

// The adapters differ in rank, steps and optimizer parameters; one has no gradient.
TEST(TrainSchedulerOnNative, StepsTakenTogetherThenSameBitsAsOneByOne) {
  const ModelSpec spec = tiny_spec(Family::kQwen3, true);
  constexpr int kAdapters = 5;
  Numbers numbers(8);
  const auto together = engine_of(spec, kAdapters);
  const auto alone = engine_of(spec, kAdapters);
  for (uint64_t round = 0; round < 3; ++round) {
    std::vector<TrainRequest> requests;
    std::vector<AdapterStep> steps;
    for (int i = 0; i < kAdapters; ++i) {
      if (i == static_cast<int>(round)) continue;
      requests.push_back(random_request(spec, i, numbers, round * 10 + static_cast<uint64_t>(i)));
      requests.back().backward = true;
    }
    for (int i = kAdapters - 1; i >= 0; --i) {
      AdamParams params;
      params.learning_rate = 0.01 * (i + 1);
      params.weight_decay = 0.1 * i;
      params.grad_clip_norm = i % 2 == 0 ? 0.5 : 0;
      steps.push_back({AdapterId(std::to_string(i)), params});
    }
    run(*together, requests, 4096);
    run(*alone, requests, 0);
    const auto reports = together->training().optim_steps(steps);
    ASSERT_EQ(reports.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const OptimReport expected =
          alone->training().optim_step(steps[i].adapter, std::get<AdamParams>(steps[i].params)).value();
      ASSERT_TRUE(reports[i].ok());
      EXPECT_EQ(reports[i]->grad_norm, expected.grad_norm);
      EXPECT_EQ(reports[i]->clipped, expected.clipped);
      EXPECT_EQ(reports[i]->step, expected.step);
      const AdapterState left = together->adapters().export_state(steps[i].adapter, true).value();
      const AdapterState right = alone->adapters().export_state(steps[i].adapter, true).value();
      expect_same(left.tensors, right.tensors, "weights of " + steps[i].adapter.str());
      expect_same(left.moments.first, right.moments.first, "first moments of " + steps[i].adapter.str());
      expect_same(left.moments.second, right.moments.second, "second moments of " + steps[i].adapter.str());
    }
  }
}

TEST(TrainSchedulerOnNative, OneOfTheStepsFailsThenTheOthersAreTaken) {
  const ModelSpec spec = tiny_spec(Family::kLlama, false);
  Numbers numbers(6);
  const auto engine = engine_of(spec, 3);
  AdapterState state = random_adapter(spec, 6, 1);
  state.tensors[1].b[0] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(engine->adapters().import_state(AdapterId("1"), state).ok());
  for (int i = 0; i < 3; ++i) {
    TrainRequest request = random_request(spec, i, numbers, static_cast<uint64_t>(i));
    request.backward = true;
    run(*engine, {request}, 4096);
  }
  const auto reports = engine->training().optim_steps(std::vector<AdapterStep>{
      {AdapterId("1"), {}}, {AdapterId("nobody"), {}}, {AdapterId("0"), {}}, {AdapterId("0"), {}}});
  ASSERT_EQ(reports.size(), 4U);
  EXPECT_FALSE(reports[0]->applied);
  EXPECT_EQ(reports[0]->step, 0);
  EXPECT_EQ(reports[1].error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(reports[2]->applied);
  EXPECT_EQ(reports[2]->step, 1);
  EXPECT_EQ(reports[3].error().reason, "step_twice");
  for (const char* id : {"0", "1"}) {
    const std::vector<LoraTensor> gradients = engine->adapters().gradients(AdapterId(id)).value();
    for (const LoraTensor& tensor : gradients) {
      for (const float value : tensor.b) ASSERT_EQ(value, 0.0F) << id;
    }
  }
  const AdapterState left = engine->adapters().export_state(AdapterId("0"), false).value();
  for (const LoraTensor& tensor : left.tensors) {
    for (const float value : tensor.a) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(TrainSchedulerOnNative, CancelledHalfWayThenTheGradientIsBitForBitWhatItWas) {
  const ModelSpec spec = tiny_spec(Family::kQwen3, true);
  Numbers numbers(5);
  const auto engine = engine_of(spec, 1);
  const AdapterId id("0");
  TrainRequest request = random_request(spec, 0, numbers, 1);
  request.backward = true;
  TrainRequest large = request;
  while (large.data.size() < 4) large.data.push_back(large.data.front());
  const auto cancel_half_way = [&] {
    const auto scheduler = make_train_scheduler(engine->model(), engine->adapters(), engine->training(),
                                                {.batch_tokens = 1, .tokens_max = 0});
    ASSERT_TRUE(scheduler->submit(large, [](const Result<TrainOutput>& result) { EXPECT_FALSE(result.ok()); }).ok());
    scheduler->step();
    scheduler->step();
    scheduler->cancel(id, internal_error("enough"));
  };
  cancel_half_way();
  run(*engine, {request}, 512);
  const auto before = engine->adapters().gradients(id).value();
  const int64_t bytes = engine->adapters().memory().gradients;
  cancel_half_way();
  expect_same(engine->adapters().gradients(id).value(), before, "cancelled");
  EXPECT_GT(engine->adapters().memory().gradients, bytes) << "the marked copy is counted";
  ASSERT_TRUE(engine->training().optim_step(id, {}).ok());
  EXPECT_EQ(engine->adapters().memory().gradients, bytes);
  EXPECT_FALSE(engine->adapters().restore_gradients(id).ok()) << "a step ends the mark";
}

}  // namespace
}  // namespace tuft::engine::native::test
