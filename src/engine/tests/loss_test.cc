#include "engine/loss/loss.h"

#include <cmath>
#include <string>
#include <utility>
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
  const auto entropy = make_loss("cross_entropy", {}).value();
  double sum = 0;
  for (const double logprob : {-.2, -.5, -.3}) sum += entropy->token(logprob, std::vector{1.0}).loss;
  EXPECT_NEAR(sum, 1.0, 1e-12);
  EXPECT_NEAR(sum_of("importance_sampling", {}, {{-.1, -.4, -.5}, {-.2, -.5, -.25}}), -0.38940039, 1e-8);
  const LossConfig ppo{{"clip_low_threshold", 0.8}, {"clip_high_threshold", 1.2}};
  EXPECT_NEAR(sum_of("ppo", ppo, {{-.2, -.5, -.4}, {-.1, -.4, -.2}}), -0.4093653, 1e-7);
  const LossConfig cispo{{"clip_low_threshold", 0.85}, {"clip_high_threshold", 1.15}};
  EXPECT_NEAR(sum_of("cispo", cispo, {{-.3, -.6, -.2}, {-.2, -.5, -.1}}), -0.1810, 1e-4);
  EXPECT_NEAR(sum_of("dro", {{"beta", 0.05}}, {{-.4, -.3, -.5}, {-.2, -.1, -.4}}), 0.3522, 4e-4);
}

// Compares dloss_dlogprob with the slope of the loss, on both sides of the clipping.
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

// The formulas again, as sums over a whole datum and written differently: by cases of the clipping.
struct Reference {
  const char* name;
  LossConfig config;
  // Returns the loss of one token and its derivative by the log-probability.
  std::pair<double, double> (*token)(double logprob, double sampled, double x);
};

std::pair<double, double> clipped_surrogate(double p, double q, double a, double low, double high) {
  const double r = std::exp(p - q);
  if (a >= 0) return r > high ? std::pair(-high * a, 0.0) : std::pair(-r * a, -r * a);
  return r < low ? std::pair(-low * a, 0.0) : std::pair(-r * a, -r * a);
}

std::pair<double, double> constant_ratio(double p, double q, double a, double low, double high) {
  const double r = std::exp(p - q);
  const double held = r < low ? low : r > high ? high : r;
  return {-held * a * p, -held * a};
}

const std::vector<Reference>& references() {
  using Pair = std::pair<double, double>;
  static const std::vector<Reference> all = {
      {"cross_entropy", {}, [](double p, double, double w) { return Pair(-w * p, -w); }},
      {"importance_sampling",
       {},
       [](double p, double q, double a) {
         return Pair(-std::exp(p) / std::exp(q) * a, -std::exp(p) / std::exp(q) * a);
       }},
      {"ppo", {}, [](double p, double q, double a) { return clipped_surrogate(p, q, a, 0.9, 1.1); }},
      {"ppo",
       {{"clip_low_threshold", 0.5}, {"clip_high_threshold", 3}},
       [](double p, double q, double a) { return clipped_surrogate(p, q, a, 0.5, 3); }},
      {"cispo", {}, [](double p, double q, double a) { return constant_ratio(p, q, a, 0.9, 1.1); }},
      {"cispo",
       {{"clip_low_threshold", 0}, {"clip_high_threshold", 5}},
       [](double p, double q, double a) { return constant_ratio(p, q, a, 0, 5); }},
      {"dro",
       {},
       [](double p, double q, double a) { return Pair(-(p * a - 0.005 * (p - q) * (p - q)), 0.01 * (p - q) - a); }},
      {"dro",
       {{"beta", 2}},
       [](double p, double q, double a) { return Pair(-(p * a - (p - q) * (p - q)), 2 * (p - q) - a); }},
  };
  return all;
}

TEST(Loss, MatchesTheFloat64Reference) {
  for (const Reference& reference : references()) {
    const auto loss = make_loss(reference.name, reference.config).value();
    uint64_t state = 3;
    const auto uniform = [&state] {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return static_cast<double>(state >> 40) * 0x1.0p-24;
    };
    double sum = 0;
    double expected = 0;
    for (int i = 0; i < 2000; ++i) {
      const double p = -12 * uniform();
      const double q = p + 3 * (uniform() - 0.5);
      const double x = 4 * (uniform() - 0.5);
      std::vector<double> inputs = {x};
      if (loss->inputs().size() == 2) inputs.insert(inputs.begin(), q);
      const TokenLoss token = loss->token(p, inputs);
      const auto [value, slope] = reference.token(p, q, x);
      ASSERT_NEAR(token.loss, value, 1e-6 * (1e-6 + std::fabs(value))) << reference.name;
      ASSERT_NEAR(token.dloss_dlogprob, slope, 1e-6 * (1e-6 + std::fabs(slope))) << reference.name;
      sum += token.loss;
      expected += value;
    }
    EXPECT_NEAR(sum, expected, 1e-6 * std::fabs(expected)) << reference.name;
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
  const double ratio = std::exp(0.5);  // above the upper bound
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

TEST(Loss, InvalidConfigIsNamed) {
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
