#include "engine/loss/loss.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

struct Tokens {
  std::vector<double> logprobs;
  std::vector<double> sampled;
  std::vector<double> advantages = {1, -1, 0.5};
};

double sum_of(const std::string& name, const LossConfig& config, const Tokens& tokens) {
  const auto loss = make_loss(name, config);
  EXPECT_TRUE(loss.ok());
  double sum = 0;
  for (size_t i = 0; i < tokens.logprobs.size(); ++i)
    sum += (*loss)->token(tokens.logprobs[i], std::vector{tokens.sampled[i], tokens.advantages[i]}).loss;
  return sum;
}

double slope_of(const Loss& loss, double logprob, const std::vector<double>& inputs) {
  constexpr double kStep = 1e-6;
  return (loss.token(logprob + kStep, inputs).loss - loss.token(logprob - kStep, inputs).loss) / (2 * kStep);
}

TEST(Loss, NamesThenEachCanBeMade) {
  for (const std::string_view name : loss_names()) EXPECT_TRUE(make_loss(std::string(name), {}).ok());
}

// TuFT's test vectors.
TEST(Loss, KnownTokensThenKnownSums) {
  EXPECT_NEAR(sum_of("importance_sampling", {}, {{-.1, -.4, -.5}, {-.2, -.5, -.25}}), -0.38940039, 1e-8);
  const LossConfig ppo{{"clip_low_threshold", 0.8}, {"clip_high_threshold", 1.2}};
  EXPECT_NEAR(sum_of("ppo", ppo, {{-.2, -.5, -.4}, {-.1, -.4, -.2}}), -0.4093653, 1e-7);
  const LossConfig cispo{{"clip_low_threshold", 0.85}, {"clip_high_threshold", 1.15}};
  EXPECT_NEAR(sum_of("cispo", cispo, {{-.3, -.6, -.2}, {-.2, -.5, -.1}}), -0.1810, 1e-4);
  EXPECT_NEAR(sum_of("dro", {{"beta", 0.05}}, {{-.4, -.3, -.5}, {-.2, -.1, -.4}}), 0.3522, 4e-4);
}

// dloss_dlogprob against the slope of the loss itself, on both sides of the clipping.
TEST(Loss, GradientThenMatchesFiniteDifference) {
  for (const std::string name : {"cross_entropy", "importance_sampling", "ppo", "dro"}) {
    const auto loss = make_loss(name, {});
    ASSERT_TRUE(loss.ok());
    for (const double logprob : {-0.01, -1.0, -1.21, -7.5}) {
      for (const double advantage : {-1.5, 0.7}) {
        std::vector<double> inputs((*loss)->inputs().size(), -1.2);
        inputs.back() = advantage;
        const double slope = slope_of(**loss, logprob, inputs);
        EXPECT_NEAR((*loss)->token(logprob, inputs).dloss_dlogprob, slope, 1e-6 * (1 + std::fabs(slope))) << name;
      }
    }
  }
}

TEST(Loss, CispoThenNoGradientThroughTheRatio) {
  const auto loss = make_loss("cispo", {});
  ASSERT_TRUE(loss.ok());
  // r = e^0.5, clipped to 1.1; r = e^0.05, not clipped.
  EXPECT_DOUBLE_EQ((*loss)->token(-0.5, std::vector{-1.0, 2.0}).dloss_dlogprob, -1.1 * 2.0);
  EXPECT_DOUBLE_EQ((*loss)->token(-0.95, std::vector{-1.0, 2.0}).dloss_dlogprob, -std::exp(0.05) * 2.0);
}

TEST(Loss, PpoThenClippedTokensPushOneWayOnly) {
  const auto loss = make_loss("ppo", {});
  ASSERT_TRUE(loss.ok());
  const double ratio = std::exp(0.5);  // over the upper bound
  EXPECT_DOUBLE_EQ((*loss)->token(-0.5, std::vector{-1.0, 2.0}).dloss_dlogprob, 0.0);
  EXPECT_DOUBLE_EQ((*loss)->token(-0.5, std::vector{-1.0, -2.0}).dloss_dlogprob, 2.0 * ratio);
}

TEST(Loss, AdvantageZeroThenPromptTokensCountNothing) {
  for (const std::string name : {"importance_sampling", "ppo", "cispo"}) {
    const auto loss = make_loss(name, {});
    ASSERT_TRUE(loss.ok());
    const TokenLoss token = (*loss)->token(0.0, std::vector{-1e6, 0.0});
    EXPECT_EQ(token.loss, 0.0) << name;
    EXPECT_EQ(token.dloss_dlogprob, 0.0) << name;
  }
}

TEST(Loss, ConfigMakesNoSenseThenNamed) {
  const auto message = [](const std::string& name, const LossConfig& config) {
    const auto loss = make_loss(name, config);
    return loss.ok() ? std::string() : loss.error().message;
  };
  EXPECT_NE(message("ppo", {{"clip_low_threshold", 1.2}}).find("clip_low_threshold"), std::string::npos);
  EXPECT_NE(message("cispo", {{"clip_high_threshold", NAN}}).find("clip_high_threshold"), std::string::npos);
  EXPECT_NE(message("ppo", {{"clip_low_threshold", -0.1}}), "");
  EXPECT_NE(message("dro", {{"beta", -1}}).find("beta"), std::string::npos);
  EXPECT_NE(message("dro", {{"clip", 1}}).find("it has beta"), std::string::npos);
}

}  // namespace
}  // namespace tuft::engine
