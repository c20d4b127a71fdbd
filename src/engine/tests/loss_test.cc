#include "engine/loss/loss.h"

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

struct ScoredTokens {
  std::vector<double> logprobs;
  std::vector<double> sampled;
  std::vector<double> advantages = {1, -1, 0.5};
};

const TokenwiseLoss& tokenwise(const std::unique_ptr<Loss>& loss) {
  return dynamic_cast<const TokenwiseLoss&>(*loss);
}

double sum_of(const std::string& name, const LossConfig& config, const ScoredTokens& tokens) {
  const auto loss = make_loss(name, config);
  EXPECT_TRUE(loss.ok());
  double sum = 0;
  for (size_t i = 0; i < tokens.logprobs.size(); ++i)
    sum += tokenwise(*loss).token(tokens.logprobs[i], std::vector{tokens.sampled[i], tokens.advantages[i]}).loss;
  return sum;
}

double slope_of(const TokenwiseLoss& loss, double logprob, const std::vector<double>& inputs) {
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
  for (const double logprob : {-.2, -.5, -.3}) sum += tokenwise(entropy).token(logprob, std::vector{1.0}).loss;
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
        const double slope = slope_of(tokenwise(*loss), logprob, inputs);
        EXPECT_NEAR(tokenwise(*loss).token(logprob, inputs).dloss_dlogprob, slope, 1e-6 * (1 + std::fabs(slope)))
            << name;
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
      {"ppo", {}, [](double p, double q, double a) { return clipped_surrogate(p, q, a, 0.8, 1.2); }},
      {"ppo",
       {{"clip_low_threshold", 0.5}, {"clip_high_threshold", 3}},
       [](double p, double q, double a) { return clipped_surrogate(p, q, a, 0.5, 3); }},
      {"cispo", {}, [](double p, double q, double a) { return constant_ratio(p, q, a, 0, 4); }},
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
      const TokenLoss token = tokenwise(loss).token(p, inputs);
      const auto [value, slope] = reference.token(p, q, x);
      ASSERT_NEAR(token.loss, value, 1e-6 * (1e-6 + std::fabs(value))) << reference.name;
      ASSERT_NEAR(token.dloss_dlogprob, slope, 1e-6 * (1e-6 + std::fabs(slope))) << reference.name;
      sum += token.loss;
      expected += value;
    }
    EXPECT_NEAR(sum, expected, 1e-6 * std::fabs(expected)) << reference.name;
  }
}

// ---- gspo

struct Trajectory {
  std::vector<float> logprobs, sampled, advantages, mask;

  DatumLoss apply(const Loss& loss, std::vector<float>& dloss) const {
    const std::vector<std::span<const float>> inputs = {sampled, advantages, mask};
    dloss.resize(logprobs.size());
    return loss.datum({logprobs, inputs}, dloss);
  }
};

// The formula in f64, with the stop gradients as values of `frozen`, whose derivative by `moved` is the gradient.
double gspo_of(const Trajectory& data, const std::vector<double>& moved, double low, double high) {
  double sum = 0;
  double count = 0;
  for (size_t t = 0; t < moved.size(); ++t) {
    if (data.mask[t] == 0.0F) continue;
    sum += static_cast<double>(data.logprobs[t]) - static_cast<double>(data.sampled[t]);
    ++count;
  }
  double loss = 0;
  for (size_t t = 0; t < moved.size(); ++t) {
    const double a = data.advantages[t];
    const double rho = std::exp(sum / count + moved[t] - static_cast<double>(data.logprobs[t]));
    const double held = rho < low ? low : rho > high ? high : rho;
    loss -= rho * a < held * a ? rho * a : held * a;
  }
  return loss;
}

TEST(Gspo, MatchesTheFloat64ReferenceAndItsSlopes) {
  uint64_t state = 11;
  const auto uniform = [&state] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<float>(state >> 40) * 0x1.0p-24F;
  };
  int clipped = 0;
  int open = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const bool narrow = trial % 2 == 0;
    const LossConfig config =
        narrow ? LossConfig{} : LossConfig{{"clip_low_threshold", 0.8}, {"clip_high_threshold", 1.3}};
    const auto loss = make_loss("gspo", config).value();
    const double low = narrow ? 0.9997 : 0.8;
    const double high = narrow ? 1.0004 : 1.3;
    Trajectory data;
    const size_t tokens = 2 + static_cast<size_t>(trial % 9);
    for (size_t t = 0; t < tokens; ++t) {
      data.logprobs.push_back(-6 * uniform());
      data.sampled.push_back(data.logprobs[t] + (narrow ? 0.004F : 2.0F) * (uniform() - 0.5F));
      data.advantages.push_back(uniform() < 0.2F ? 0.0F : 4 * (uniform() - 0.5F));
      data.mask.push_back(t == 0 || uniform() < 0.5F ? 1.0F : 0.0F);
    }
    std::vector<float> dloss;
    const DatumLoss got = data.apply(*loss, dloss);
    const std::vector<double> at(data.logprobs.begin(), data.logprobs.end());
    ASSERT_NEAR(got.loss, gspo_of(data, at, low, high), 1e-9 * (1 + std::fabs(got.loss)));
    for (size_t t = 0; t < tokens; ++t) {
      constexpr double kStep = 1e-7;
      std::vector<double> above = at;
      std::vector<double> below = at;
      above[t] += kStep;
      below[t] -= kStep;
      const double slope = (gspo_of(data, above, low, high) - gspo_of(data, below, low, high)) / (2 * kStep);
      ASSERT_NEAR(dloss[t], slope, 1e-5) << trial << ' ' << t;
      if (data.advantages[t] != 0.0F) ++(dloss[t] == 0.0F ? clipped : open);
    }
  }
  EXPECT_GT(clipped, 100);
  EXPECT_GT(open, 100);
}

// The vector of the protocol's reference: the learner's -1.5 for tokens sampled with -0.5 and -0.25.
TEST(Gspo, OneRatioForTheWholeDatum) {
  const auto loss = make_loss("gspo", {{"clip_low_threshold", 0.1}, {"clip_high_threshold", 10}}).value();
  Trajectory data{{-1.5F, -1.5F, -1.5F, -1.5F}, {0, -9, -0.5F, -0.25F}, {0, 2, 1, 1}, {0, 0, 1, 1}};
  std::vector<float> dloss;
  const double ratio = std::exp((-1.0 - 1.25) / 2);
  const DatumLoss got = data.apply(*loss, dloss);
  EXPECT_NEAR(got.loss, -4 * ratio, 1e-12);
  EXPECT_EQ(got.weight, 3.0);
  EXPECT_TRUE(got.has_mean);
  const std::vector<double> expected = {0, -2 * ratio, -ratio, -ratio};
  for (size_t t = 0; t < expected.size(); ++t) EXPECT_NEAR(dloss[t], expected[t], 1e-6);
}

TEST(Gspo, NoMaskedTokenThenRefusedUnlessNothingIsLearned) {
  const auto loss = make_loss("gspo", {}).value();
  const std::vector<float> zero = {0, 0};
  const std::vector<float> some = {0, 1};
  const auto refusal = [&](const std::vector<float>& advantages, const std::vector<float>& mask) {
    return loss->refusal(std::vector<std::span<const float>>{zero, advantages, mask});
  };
  EXPECT_NE(refusal(some, zero).find("sequence_ratio_mask is 0 everywhere"), std::string_view::npos);
  EXPECT_EQ(refusal(zero, zero), "");
  EXPECT_EQ(refusal(some, some), "");
  const Trajectory data{{-1, -1}, {-700, -1e6F}, {0, 0}, {0, 0}};
  std::vector<float> dloss;
  EXPECT_EQ(data.apply(*loss, dloss).loss, 0.0);
  EXPECT_EQ(dloss, zero);
}

// ---- stable_reinforce

// The formula in f64: the weight is that of `frozen`, whose derivative by `moved` is not taken.
double stable_of(double frozen, double moved, double q, double a, double kl_coeff) {
  const double ratio = std::exp(frozen - q);
  const double weight = ratio < 2 ? ratio : 2;
  return -weight * a * moved + kl_coeff * (std::exp(moved - q) - 1 - (moved - q));
}

TEST(StableReinforce, MatchesTheFloat64ReferenceAndItsSlopes) {
  for (const double kl_coeff : {0.0, 0.3}) {
    const auto loss = make_loss("stable_reinforce", {{"kl_coeff", kl_coeff}}).value();
    for (const double p : {-0.01, -1.0, -1.9, -7.5}) {  // of ratios on both sides of 2
      for (const double a : {-1.5, 0.0, 0.7}) {
        constexpr double kQ = -1.2;
        constexpr double kStep = 1e-6;
        const TokenLoss got = tokenwise(loss).token(p, std::vector{kQ, a, 1.0});
        const double slope =
            (stable_of(p, p + kStep, kQ, a, kl_coeff) - stable_of(p, p - kStep, kQ, a, kl_coeff)) / (2 * kStep);
        EXPECT_NEAR(got.loss, stable_of(p, p, kQ, a, kl_coeff), 1e-12);
        EXPECT_NEAR(got.dloss_dlogprob, slope, 1e-7);
        EXPECT_EQ(got.weight, 1.0);
      }
    }
  }
}

TEST(StableReinforce, OnPolicyItIsReinforceAndOffPolicyTheWeightIsTruncated) {
  const auto loss = make_loss("stable_reinforce", {}).value();
  EXPECT_DOUBLE_EQ(tokenwise(loss).token(-0.5, std::vector{-0.5, 3.0, 1.0}).dloss_dlogprob, -3.0);
  EXPECT_DOUBLE_EQ(tokenwise(loss).token(-0.5, std::vector{-800.0, 3.0, 1.0}).dloss_dlogprob, -6.0);
  EXPECT_DOUBLE_EQ(tokenwise(loss).token(-0.5, std::vector{-800.0, 3.0, 1.0}).loss, 3.0);
}

TEST(StableReinforce, OnlySampledTokensCount) {
  const auto loss = make_loss("stable_reinforce", {{"kl_coeff", 1}}).value();
  const TokenLoss token = tokenwise(loss).token(-3.0, std::vector{0.0, 0.0, 0.0});
  EXPECT_EQ(token.loss, 0.0);
  EXPECT_EQ(token.dloss_dlogprob, 0.0);
  EXPECT_EQ(token.weight, 0.0);
  const std::vector<float> zero = {0, 0};
  const std::vector<float> second = {0, 1};
  const std::vector<float> both = {1, 1};
  const auto refusal = [&](const std::vector<float>& advantages, const std::vector<float>& mask) {
    return loss->refusal(std::vector<std::span<const float>>{zero, advantages, mask});
  };
  EXPECT_NE(refusal(both, second).find("do not call sampled"), std::string_view::npos);
  EXPECT_EQ(refusal(second, second), "");
  EXPECT_EQ(refusal(zero, zero), "");
}

// ---- the bounds

TEST(Loss, CispoThenNoGradientThroughTheRatio) {
  const auto loss = make_loss("cispo", {});
  ASSERT_TRUE(loss.ok());
  // r = e^2, clipped to 4; r = e^0.5, not clipped.
  EXPECT_DOUBLE_EQ(tokenwise(*loss).token(-0.5, std::vector{-2.5, 2.0}).dloss_dlogprob, -4.0 * 2.0);
  EXPECT_DOUBLE_EQ(tokenwise(*loss).token(-0.5, std::vector{-1.0, 2.0}).dloss_dlogprob, -std::exp(0.5) * 2.0);
}

TEST(Loss, PpoThenClippedTokensPushOneWayOnly) {
  const auto loss = make_loss("ppo", {});
  ASSERT_TRUE(loss.ok());
  const double ratio = std::exp(0.5);  // above the upper bound
  EXPECT_DOUBLE_EQ(tokenwise(*loss).token(-0.5, std::vector{-1.0, 2.0}).dloss_dlogprob, 0.0);
  EXPECT_DOUBLE_EQ(tokenwise(*loss).token(-0.5, std::vector{-1.0, -2.0}).dloss_dlogprob, 2.0 * ratio);
}

// So that the next optim_step is skipped (train/scheduler.h).
TEST(Loss, ALossIsNotFiniteThenItsGradientIsNotEither) {
  const std::vector<float> sampled = {-1.0F, -1.0F, -1.0F};
  const std::vector<float> ones = {1.0F, 1.0F, 1.0F};
  const std::vector<std::span<const float>> inputs = {sampled, ones, ones};
  for (const float broken : {std::nanf(""), -HUGE_VALF}) {
    const std::vector<float> logprobs = {-1.0F, broken, -2.0F};
    for (const std::string_view name : loss_names()) {
      const auto loss = make_loss(std::string(name), {}).value();
      std::vector<float> dloss(logprobs.size());
      const DatumLoss got = loss->datum({logprobs, inputs}, dloss);
      EXPECT_TRUE(std::isnan(got.loss) || !std::isnan(broken)) << name;
      EXPECT_TRUE(std::isfinite(got.loss) || !std::isfinite(dloss[1])) << name << ' ' << broken;
    }
  }
  const auto ppo = make_loss("ppo", {}).value();
  EXPECT_TRUE(std::isnan(tokenwise(ppo).token(NAN, std::vector{-1.0, 2.0}).dloss_dlogprob));
}

TEST(Loss, AdvantageZeroThenPromptTokensCountNothing) {
  for (const std::string name : {"importance_sampling", "ppo", "cispo"}) {
    const auto loss = make_loss(name, {});
    ASSERT_TRUE(loss.ok());
    const TokenLoss token = tokenwise(*loss).token(0.0, std::vector{-1e6, 0.0});
    EXPECT_EQ(token.loss, 0.0) << name;
    EXPECT_EQ(token.dloss_dlogprob, 0.0) << name;
  }
}

TEST(Loss, InvalidConfigIsNamed) {
  const auto message = [](const std::string& name, const LossConfig& config) {
    const auto loss = make_loss(name, config);
    return loss.ok() ? std::string() : loss.error().message;
  };
  EXPECT_NE(message("ppo", {{"clip_low_threshold", 1.3}}).find("clip_low_threshold"), std::string::npos);
  EXPECT_NE(message("cispo", {{"clip_high_threshold", NAN}}).find("clip_high_threshold"), std::string::npos);
  EXPECT_NE(message("ppo", {{"clip_low_threshold", -0.1}}), "");
  EXPECT_NE(message("dro", {{"beta", -1}}).find("beta"), std::string::npos);
  EXPECT_NE(message("stable_reinforce", {{"kl_coeff", -0.1}}).find("kl_coeff"), std::string::npos);
  EXPECT_NE(message("stable_reinforce", {{"kl_coeff", NAN}}).find("kl_coeff"), std::string::npos);
  EXPECT_NE(message("nonsense", {}).find("there are cross_entropy, importance_sampling"), std::string::npos);
  EXPECT_NE(message("dro", {{"clip", 1}}).find("it has beta"), std::string::npos);
}

}  // namespace
}  // namespace tuft::engine
