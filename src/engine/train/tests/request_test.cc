// Tests one request alone: its losses, what is refused, and its effect on the gradient.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/loss/loss.h"
#include "engine/tests/fake_training_engine.h"
#include "engine/train/scheduler.h"
#include "engine/train/tests/tensors.h"

namespace tuft::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const AdapterId kAdapter("a");

const std::vector<float>& values(const LossTensor& tensor) {
  return std::get<std::vector<float>>(tensor.values);
}

// Tokens 1, 2, ... with targets 2, 3, ... and no weights.
Datum counting_datum(int length) {
  Datum datum;
  std::vector<int64_t> targets;
  for (int i = 0; i < length; ++i) {
    datum.tokens.push_back(i + 1);
    targets.push_back(i + 2);
  }
  datum.loss_inputs["target_tokens"] = int_tensor(std::move(targets));
  return datum;
}

class TrainRequestTest : public ::testing::Test {
 protected:
  TrainRequestTest() { EXPECT_TRUE(engine_.adapters().create(kAdapter, {}).ok()); }

  TrainRequest request(std::vector<Datum> data, const std::string& loss) {
    return {kAdapter, std::move(data), loss, config_, backward_};
  }
  Result<TrainOutput> run(std::vector<Datum> data, const std::string& loss = "cross_entropy") {
    return train_alone(engine_, request(std::move(data), loss), options_);
  }
  void expect_refused(std::vector<Datum> data, const std::string& message, const std::string& loss = "cross_entropy") {
    const auto output = run(std::move(data), loss);
    ASSERT_FALSE(output.ok()) << "wanted: " << message;
    EXPECT_EQ(output.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(output.error().message, HasSubstr(message));
    EXPECT_TRUE(engine_.packs.empty());
  }
  double gradient() { return engine_.gradient_sums.at("a"); }

  FakeTrainingEngine engine_;
  TrainerOptions options_;
  std::map<std::string, double> config_;
  bool backward_ = true;
};

TEST_F(TrainRequestTest, CrossEntropyThenWeightedSumAndItsGradient) {
  Datum datum;
  datum.tokens = {10, 20, 30};
  datum.loss_inputs["target_tokens"] = int_tensor({20, 30, 40});
  datum.loss_inputs["weights"] = float_tensor({0.0F, 1.0F, -0.5F});
  const auto output = run({datum});
  ASSERT_TRUE(output.ok()) << output.error().message;
  const float second = FakeTrainingEngine::logprob(20, 1, 30);
  const float third = FakeTrainingEngine::logprob(30, 2, 40);
  EXPECT_DOUBLE_EQ(output->metrics.at("loss:sum"), -double{second} + 0.5 * double{third});
  EXPECT_EQ(output->weight_sum, 0.0) << "a weight below 0 is of a custom loss: there is no mean";
  ASSERT_EQ(engine_.dloss.size(), 1U);
  EXPECT_THAT(engine_.dloss[0], ElementsAre(0.0F, -1.0F, 0.5F));
  EXPECT_THAT(output->logprobs[0].shape, ElementsAre(3));
  EXPECT_THAT(values(output->logprobs[0]), ElementsAre(FakeTrainingEngine::logprob(10, 0, 20), second, third));
  EXPECT_EQ(output->tokens, 3);
  EXPECT_EQ(output->passes, 1);
}

TEST_F(TrainRequestTest, WeightsAbsentThenOne) {
  const auto output = run({counting_datum(2)});
  ASSERT_TRUE(output.ok());
  EXPECT_THAT(engine_.dloss[0], ElementsAre(-1.0F, -1.0F));
}

TEST_F(TrainRequestTest, WholeNumberWeightsThenTakenAsFloats) {
  Datum datum = counting_datum(3);
  datum.loss_inputs["weights"] = int_tensor({0, 1, 2});
  ASSERT_TRUE(run({datum}).ok());
  EXPECT_THAT(engine_.dloss[0], ElementsAre(0.0F, -1.0F, -2.0F));
}

TEST_F(TrainRequestTest, GspoThenEachDatumHasItsOwnRatio) {
  config_ = {{"clip_low_threshold", 0.01}, {"clip_high_threshold", 100}};
  const auto with = [](std::vector<float> advantages, std::vector<float> mask) {
    Datum datum = counting_datum(2);
    datum.loss_inputs["logprobs"] = float_tensor({-1, -2});
    datum.loss_inputs["advantages"] = float_tensor(std::move(advantages));
    datum.loss_inputs["sequence_ratio_mask"] = float_tensor(std::move(mask));
    return datum;
  };
  const auto output = run({with({1, 1}, {1, 1}), with({1, 1}, {0, 1})}, "gspo");
  ASSERT_TRUE(output.ok()) << output.error().message;
  const double first = double{FakeTrainingEngine::logprob(1, 0, 2)} + 1;
  const double second = double{FakeTrainingEngine::logprob(2, 1, 3)} + 2;
  const double both = std::exp((first + second) / 2);
  const double one = std::exp(second);
  EXPECT_NEAR(output->metrics.at("loss:sum"), -2 * both - 2 * one, 1e-9);
  std::vector<float> dloss;
  for (const auto& pass : engine_.dloss) dloss.insert(dloss.end(), pass.begin(), pass.end());
  ASSERT_EQ(dloss.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(dloss[i], i < 2 ? -both : -one, 1e-5) << i;
  const auto refused = run({with({1, 1}, {1, 1}), with({1, 0}, {0, 0})}, "gspo");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("data[1]: it has advantages, but its sequence_ratio_mask is 0"));
}

TEST_F(TrainRequestTest, InputsThatTheLossDoesNotUseThenRefused) {
  Datum datum = counting_datum(2);
  datum.loss_inputs["advantages"] = float_tensor({1, 1});
  expect_refused({datum}, "data[0].loss_fn_inputs.advantages: the loss does not use it");
  datum.loss_inputs.erase("advantages");
  datum.loss_inputs["a secret"] = float_tensor({1, 1});
  expect_refused({datum},
                 "(an unreadable name): the loss does not use it, so it would be ignored; the loss uses "
                 "target_tokens, weights");
}

TEST_F(TrainRequestTest, TextInTheConfigThenRefused) {
  const auto refusal = [&](const std::string& key) {
    TrainRequest asked = request({counting_datum(1)}, "dro");
    asked.loss_texts[key] = "x";
    return train_alone(engine_, std::move(asked), options_).error().message;
  };
  EXPECT_THAT(refusal("beta"), HasSubstr("'beta' of dro is a number, not a text"));
  EXPECT_THAT(refusal("temperature"), HasSubstr("'temperature' of dro is a number, not a text"));
  EXPECT_THAT(refusal("mode"), HasSubstr("dro has no key 'mode'; it has beta, temperature"));
}

TEST_F(TrainRequestTest, SparseTensorsThenTheSameAsDenseOnes) {
  Datum datum;
  datum.tokens = {1, 2, 3};
  datum.loss_inputs["target_tokens"] = int_tensor({0, 4, 0, 0, 5, 6}, {3, 2});
  datum.loss_inputs["weights"] = float_tensor({0, 0.5F, 0, 0, 2, 0}, {3, 2});
  const auto dense = run({datum});
  ASSERT_TRUE(dense.ok()) << dense.error().message;
  const auto dloss = engine_.dloss.back();
  datum.loss_inputs["target_tokens"] = {{3, 2}, std::vector<int64_t>{4, 7, 5, 6}, std::vector<int64_t>{1, 4, 4, 5}};
  datum.loss_inputs["weights"] = {{3, 2}, std::vector<float>{2, 0.5F}, std::vector<int64_t>{4, 1}};
  const auto sparse = run({datum});
  ASSERT_TRUE(sparse.ok()) << sparse.error().message;
  EXPECT_EQ(values(sparse->logprobs[0]), values(dense->logprobs[0]));
  EXPECT_EQ(sparse->metrics, dense->metrics);
  EXPECT_EQ(engine_.dloss.back(), dloss);
}

TEST_F(TrainRequestTest, SparseTensorsThatDoNotFitTheirShapeThenRefused) {
  Datum datum = counting_datum(2);
  datum.loss_inputs["target_tokens"] = {{2, 2}, std::vector<int64_t>{4}, std::vector<int64_t>{4}};
  expect_refused({datum}, "it has 1 values and shape [2, 2]");
  datum.loss_inputs["target_tokens"] = {{2, 2}, std::vector<int64_t>{4}, std::vector<int64_t>{1, 2}};
  expect_refused({datum}, "it has 1 values and shape [2, 2]");
  datum.loss_inputs["target_tokens"] = {{2, 1025}, std::vector<int64_t>{}, std::vector<int64_t>{}};
  expect_refused({datum}, "a token has at most 1024 targets");
}

TEST_F(TrainRequestTest, SeveralTargetsARowThenOutputHasTheirShape) {
  Datum datum;
  datum.tokens = {5, 6};
  datum.loss_inputs["target_tokens"] = int_tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  datum.loss_inputs["weights"] = float_tensor({0.5F, 0.25F, 0, 1, 0, 0}, {2, 3});
  const auto output = run({counting_datum(1), datum});
  ASSERT_TRUE(output.ok()) << output.error().message;
  EXPECT_THAT(output->logprobs[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(values(output->logprobs[1])[3], FakeTrainingEngine::logprob(6, 1, 4));
  std::vector<int> rows;
  for (const Target& target : engine_.packs[0].targets) rows.push_back(target.row);
  EXPECT_THAT(rows, ElementsAre(0, 1, 1, 1, 2, 2, 2));
  EXPECT_THAT(engine_.dloss[0], ElementsAre(-1.0F, -0.5F, -0.25F, 0.0F, -1.0F, 0.0F, 0.0F));
}

TEST_F(TrainRequestTest, ImportanceSamplingThenRatioTimesAdvantage) {
  Datum datum;
  datum.tokens = {10, 20};
  datum.loss_inputs["target_tokens"] = int_tensor({20, 30});
  datum.loss_inputs["logprobs"] = float_tensor({-9000.0F, -1.0F});
  datum.loss_inputs["advantages"] = float_tensor({0.0F, 2.0F});
  const auto output = run({datum}, "importance_sampling");
  ASSERT_TRUE(output.ok()) << output.error().message;
  const double ratio = std::exp(double{FakeTrainingEngine::logprob(20, 1, 30)} + 1.0);
  EXPECT_DOUBLE_EQ(output->metrics.at("loss:sum"), -2.0 * ratio);
  EXPECT_DOUBLE_EQ(output->weight_sum, 1.0) << "tokens with an advantage";
  EXPECT_THAT(engine_.dloss[0], ElementsAre(0.0F, static_cast<float>(-2.0 * ratio)));
}

TEST_F(TrainRequestTest, LossThatOverflowsThenReportedAndLeftToTheOptimizer) {
  Datum datum = counting_datum(1);
  datum.loss_inputs["logprobs"] = float_tensor({-9000.0F});
  datum.loss_inputs["advantages"] = float_tensor({1.0F});
  const auto output = run({datum}, "importance_sampling");
  ASSERT_TRUE(output.ok());
  EXPECT_TRUE(std::isinf(output->metrics.at("loss:sum")));
  EXPECT_EQ(values(output->logprobs[0]).size(), 1U);
}

TEST_F(TrainRequestTest, TemperatureIsSetOnSegmentsAndHiddenFromTheLoss) {
  config_ = {{"temperature", 0.5}, {"beta", 0.1}};
  Datum datum = counting_datum(2);
  datum.loss_inputs["logprobs"] = float_tensor({-1, -1});
  datum.loss_inputs["advantages"] = float_tensor({1, 1});
  ASSERT_TRUE(run({datum, datum}, "dro").ok());
  for (const Segment& segment : engine_.packs[0].segments) EXPECT_EQ(segment.temperature, 0.5F);
  config_.clear();
  ASSERT_TRUE(run({counting_datum(2)}).ok());
  EXPECT_EQ(engine_.packs[1].segments[0].temperature, 1.0F);
}

TEST_F(TrainRequestTest, InvalidTemperatureIsNamed) {
  for (const double temperature : {0.0, -1.0, 1e-9, double{NAN}, double{INFINITY}, 1e300}) {
    config_["temperature"] = temperature;
    expect_refused({counting_datum(1)}, "temperature is");
  }
}

TEST_F(TrainRequestTest, BudgetThenPassesKeepTheOrder) {
  options_.batch_tokens = 5;
  const auto output =
      run({counting_datum(2), counting_datum(3), counting_datum(1), counting_datum(7), counting_datum(1)});
  ASSERT_TRUE(output.ok());
  ASSERT_EQ(engine_.packs.size(), 4U);
  EXPECT_EQ(output->passes, 4);
  EXPECT_EQ(engine_.packs[0].segments.size(), 2U);
  EXPECT_EQ(engine_.packs[0].segments[1].begin, 2);
  EXPECT_EQ(engine_.packs[0].segments[1].end, 5);
  EXPECT_EQ(engine_.packs[2].tokens.size(), 7U) << "a longer datum makes a pass of its own";
  ASSERT_EQ(output->logprobs.size(), 5U);
  for (const size_t i : {0U, 1U, 2U, 3U, 4U}) {
    EXPECT_EQ(values(output->logprobs[i])[0], FakeTrainingEngine::logprob(1, 0, 2));
  }
  EXPECT_EQ(values(output->logprobs[3]).size(), 7U);
  EXPECT_EQ(output->tokens, 14);
}

TEST_F(TrainRequestTest, OtherBudgetThenTheSameBits) {
  const auto output = run({counting_datum(2), counting_datum(9), counting_datum(4)});
  options_.batch_tokens = 1;
  const auto split = run({counting_datum(2), counting_datum(9), counting_datum(4)});
  ASSERT_TRUE(output.ok() && split.ok());
  EXPECT_EQ(output->metrics.at("loss:sum"), split->metrics.at("loss:sum"));
  EXPECT_EQ(values(output->logprobs[1]), values(split->logprobs[1]));
}

TEST_F(TrainRequestTest, ForwardOnlyThenNoGradientIsTouched) {
  ASSERT_TRUE(run({counting_datum(2)}).ok());
  const double before = gradient();
  backward_ = false;
  engine_.fail_forward = 3;
  options_.batch_tokens = 2;
  EXPECT_FALSE(run({counting_datum(2), counting_datum(2)}).ok());
  EXPECT_EQ(gradient(), before);
  EXPECT_THAT(engine_.keeps, ElementsAre(true, false, false));
}

TEST_F(TrainRequestTest, SecondPassFailsThenNoPartOfTheGradientStays) {
  options_.batch_tokens = 2;
  engine_.fail_forward = 2;
  const auto output = run({counting_datum(2), counting_datum(2)});
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(gradient(), 0.0);
  EXPECT_EQ(output.error().message, "forward failed");
}

TEST_F(TrainRequestTest, BackwardFailsThenNoPartOfTheGradientStays) {
  engine_.fail_backward = 1;
  const auto output = run({counting_datum(2)});
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(gradient(), 0.0);
}

TEST_F(TrainRequestTest, FirstForwardFailsThenEarlierGradientStays) {
  ASSERT_TRUE(run({counting_datum(2)}).ok());
  engine_.fail_forward = 2;
  const auto output = run({counting_datum(2)});
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(gradient(), -2.0);
}

TEST_F(TrainRequestTest, SecondPassFailsThenEarlierGradientStays) {
  ASSERT_TRUE(run({counting_datum(2)}).ok());
  options_.batch_tokens = 2;
  engine_.fail_forward = 3;
  EXPECT_FALSE(run({counting_datum(2), counting_datum(2)}).ok());
  EXPECT_EQ(gradient(), -2.0);
}

TEST_F(TrainRequestTest, UnknownAdapterThenNotFound) {
  const auto output = train_alone(engine_, {AdapterId("b"), {counting_datum(1)}, "cross_entropy", {}, true}, options_);
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(output.error().code, ErrorCode::kNotFound);
}

TEST_F(TrainRequestTest, UnknownLossThenKnownOnesAreListed) {
  expect_refused({counting_datum(1)}, "cross_entropy, importance_sampling, ppo, cispo, dro", "mse");
  config_["beta"] = 1.0;
  expect_refused({counting_datum(1)}, "cross_entropy has no key 'beta'");
}

TEST_F(TrainRequestTest, BadTokensThenDatumIsNamed) {
  expect_refused({}, "data is empty");
  expect_refused({counting_datum(1), Datum{}}, "data[1]: model_input has no token");
  Datum outside = counting_datum(3);
  outside.tokens[1] = 50;
  expect_refused({outside}, "data[0]: model_input has at position 1 a token outside the vocabulary of 50");
  outside.tokens[1] = -1;
  expect_refused({outside}, "data[0]: model_input");
  options_.tokens_max = 4;
  expect_refused({counting_datum(4), counting_datum(5)}, "data[1]: model_input has 5 tokens; max_model_len allows 4");
}

TEST_F(TrainRequestTest, BadTargetsThenDatumAndKeyAreNamed) {
  const std::string key = "data[1].loss_fn_inputs.target_tokens: ";
  const auto refused = [&](LossTensor targets, const std::string& message) {
    Datum datum = counting_datum(3);
    datum.loss_inputs["target_tokens"] = std::move(targets);
    expect_refused({counting_datum(3), datum}, key + message);
  };
  refused(int_tensor({1, 2}), "its shape is [2]; it must be [3] or [3, K]");
  refused(int_tensor({1, 2, 3, 4}), "its shape is [4]");
  refused(int_tensor({1, 2, 3}, {3, 0}), "its shape is [3, 0]");
  refused(int_tensor({1, 2, 3}, {3, 1, 1}), "its shape is [3, 1, 1]");
  refused(LossTensor{{}, std::vector<int64_t>{1}}, "its shape is []");
  refused(int_tensor({1, 2, 3}, {3, 2}), "it has 3 values and shape [3, 2]");
  refused(int_tensor({1, 2, 3}, {3, INT64_MAX}), "it has 3 values");
  refused(float_tensor({1, 2, 3}), "its dtype is float32");
  refused(int_tensor({1, 50, 3}), "at element 1 is a token outside the vocabulary of 50");
  refused(int_tensor({1, 2, -100}), "at element 2 is a token outside");
  refused(int_tensor({1, 2, int64_t{1} << 32}), "at element 2 is a token outside");
  Datum none = counting_datum(3);
  none.loss_inputs.clear();
  expect_refused({counting_datum(3), none}, key + "it is missing");
}

TEST_F(TrainRequestTest, BadInputsThenDatumAndKeyAreNamed) {
  const std::string key = "data[0].loss_fn_inputs.weights: ";
  const auto refused = [&](LossTensor weights, const std::string& message) {
    Datum datum = counting_datum(2);
    datum.loss_inputs["weights"] = std::move(weights);
    expect_refused({datum}, key + message);
  };
  refused(float_tensor({1}), "its shape is [1]; it must be that of target_tokens, [2]");
  refused(float_tensor({1, 1}, {2, 1}), "its shape is [2, 1]");
  refused(float_tensor({1}, {2}), "it has 1 values and shape [2]");
  refused(float_tensor({1, NAN}), "element 1 is not finite");
  refused(float_tensor({-INFINITY, 1}), "element 0 is not finite");
}

TEST_F(TrainRequestTest, ImportanceSamplingInputsMissingThenNamed) {
  Datum datum = counting_datum(2);
  expect_refused({datum}, "data[0].loss_fn_inputs.logprobs: it is missing", "importance_sampling");
  datum.loss_inputs["logprobs"] = float_tensor({0, 0});
  expect_refused({datum}, "data[0].loss_fn_inputs.advantages: it is missing", "importance_sampling");
  datum.loss_inputs["target_tokens"] = int_tensor({1, 2}, {2, 1});
  expect_refused({datum}, "it must be [2], a row", "importance_sampling");
}

}  // namespace
}  // namespace tuft::engine
