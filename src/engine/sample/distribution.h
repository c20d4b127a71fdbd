// One row of logits as a probability distribution: log-probabilities at temperature 1 and draws. The time of each is
// linear in the vocabulary, whatever the logits and the parameters are: nothing sorts the vocabulary.
// Confined to one thread; keeps its buffers from row to row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sample/ranks.h"
#include "engine/sample/sampler.h"

namespace tuft::engine {

class Distribution {
 public:
  // Sets the row, which is borrowed until the next load(). Returns false if a value is NaN or no value is finite.
  bool load(std::span<const float> logits);

  // Returns the natural logarithm of softmax(logits)[token] over the whole vocabulary.
  float logprob(int32_t token) const;

  // Returns the k most likely tokens, most likely first, ties by the smaller id. k is limited to the vocabulary.
  std::vector<TokenLogprob> top(int k);

  // Draws with `uniform` in [0, 1): scales by 1 / temperature, keeps the top_k most likely tokens (<= 0: all), then the
  // smallest set of them with a probability of top_p (1: all). Temperature 0 gives the most likely token.
  int32_t draw(float temperature, int top_k, float top_p, double uniform);
  // Returns exp((logit - max) / temperature) of every token, for the temperature of the newest draw.
  std::span<const float> weights() const { return weights_; }

 private:
  double fill_weights(float temperature);  // returns the sum of weights_
  int32_t draw_from_all(double sum, double uniform) const;
  int32_t draw_from_some(double sum, int top_k, float top_p, double uniform);
  int32_t draw_from_many(double sum, size_t count, float top_p, double uniform);
  bool gather_nucleus(double sum, float top_p);

  std::span<const float> logits_;
  float max_ = 0;
  float log_sum_ = 0;           // log of sum of exp(logit - max)
  std::vector<float> weights_;  // exp((logit - max) / temperature_)
  float temperature_ = 1;
  double sum_ = 0;
  std::vector<double> block_sums_;
  std::vector<Ranked> candidates_;
  WeightRanks ranks_;
};

// Returns a number in [0, 1) that depends on the arguments only, so that a draw does not depend on other draws.
double uniform_at(uint64_t seed, uint64_t sample, uint64_t position);

}  // namespace tuft::engine
