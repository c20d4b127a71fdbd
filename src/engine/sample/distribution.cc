#include "engine/sample/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/mix.h"
#include "engine/sample/row_kernels.h"

namespace tuft::engine {
namespace {

// Below it 1 / temperature exceeds the precision of a float, so the most likely token is chosen.
constexpr float kGreedyBelow = 1e-5F;

// The candidates of a draw are sorted up to this number; more are divided by their bits.
constexpr size_t kSortedMax = 1024;

}  // namespace

bool Distribution::load(std::span<const float> logits) {
  logits_ = logits;
  max_ = row_maximum(logits);
  if (!std::isfinite(max_)) return false;
  log_sum_ = static_cast<float>(std::log(fill_weights(1.0F)));
  return true;
}

float Distribution::logprob(int32_t token) const {
  return (logits_[static_cast<size_t>(token)] - max_) - log_sum_;
}

std::vector<TokenLogprob> Distribution::top(int k) {
  first_entries(logits_, std::min(static_cast<size_t>(k), logits_.size()), candidates_);
  std::vector<TokenLogprob> result;
  result.reserve(candidates_.size());
  for (const auto& [logit, token] : candidates_) result.push_back({token, logprob(token)});
  return result;
}

double Distribution::fill_weights(float temperature) {
  weights_.resize(logits_.size());
  block_sums_.resize((logits_.size() + kRowBlock - 1) / kRowBlock);
  row_weights(logits_, max_, 1.0F / temperature, weights_, block_sums_);
  temperature_ = temperature;
  sum_ = std::accumulate(block_sums_.begin(), block_sums_.end(), 0.0);
  return sum_;
}

int32_t Distribution::draw(float temperature, int top_k, float top_p, double uniform) {
  if (temperature < kGreedyBelow) return static_cast<int32_t>(find_at_least(logits_, 0, max_));
  const double sum = temperature == temperature_ ? sum_ : fill_weights(temperature);
  const bool all = (top_k <= 0 || static_cast<size_t>(top_k) >= logits_.size()) && top_p >= 1.0F;
  return all ? draw_from_all(sum, uniform) : draw_from_some(sum, top_k, top_p, uniform);
}

int32_t Distribution::draw_from_all(double sum, double uniform) const {
  double left = uniform * sum;
  size_t block = 0;
  while (block + 1 < block_sums_.size() && left >= block_sums_[block]) left -= block_sums_[block++];
  const size_t begin = block * kRowBlock;
  const size_t end = std::min(weights_.size(), begin + kRowBlock);
  // Rounding can leave slightly more than the sum of the block; then the last token with a weight is chosen.
  size_t chosen = begin;
  for (size_t i = begin; i < end; ++i) {
    if (logits_[i] == -INFINITY) continue;
    chosen = i;
    left -= static_cast<double>(weights_[i]);
    if (left < 0) break;
  }
  return static_cast<int32_t>(chosen);
}

int32_t Distribution::draw_from_some(double sum, int top_k, float top_p, double uniform) {
  const bool cut = top_k > 0 && static_cast<size_t>(top_k) < weights_.size();
  if (cut ? static_cast<size_t>(top_k) > kSortedMax : !gather_nucleus(sum, top_p)) {
    return draw_from_many(sum, cut ? static_cast<size_t>(top_k) : weights_.size(), top_p, uniform);
  }
  if (cut) {
    first_entries(weights_, static_cast<size_t>(top_k), candidates_);
    sum = 0;
    for (const auto& candidate : candidates_) sum += static_cast<double>(candidate.first);
  } else {
    std::sort(candidates_.begin(), candidates_.end(), [](const Ranked& left, const Ranked& right) {
      return left.first != right.first ? left.first > right.first : left.second < right.second;
    });
  }
  double kept = 0;
  size_t count = 0;
  while (count < candidates_.size() && (count == 0 || kept < static_cast<double>(top_p) * sum)) {
    kept += static_cast<double>(candidates_[count++].first);
  }
  double left = uniform * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= static_cast<double>(candidates_[i].first);
    if (left < 0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

// Sets candidates_ to tokens that include the nucleus. The tokens above a bound do if they have a probability of top_p;
// the first bound is so high that kSortedMax tokens at most are above it. In any case they do if the others, below
// (1 - top_p) / vocabulary, have at most 1 - top_p together. Returns false if they are too many to be sorted.
bool Distribution::gather_nucleus(double sum, float top_p) {
  const double floor = 0.999 * (1.0 - static_cast<double>(top_p)) * sum / static_cast<double>(weights_.size());
  // Above the rounding of a sum in another order; the most likely token alone weighs 1.
  const double enough = std::max(1.0, static_cast<double>(top_p) * sum * (1.0 + 1e-9));
  for (double least = std::max(floor, sum / kSortedMax);; least = std::max(floor, least / 16)) {
    candidates_.clear();
    double gathered = 0;
    for (size_t i = 0; (i = find_at_least(weights_, i, static_cast<float>(least))) < weights_.size(); ++i) {
      if (candidates_.size() == kSortedMax) return false;
      candidates_.emplace_back(weights_[i], static_cast<int32_t>(i));
      gathered += static_cast<double>(weights_[i]);
    }
    if (gathered >= enough || least == floor) return true;
  }
}

int32_t Distribution::draw_from_many(double sum, size_t count, float top_p, double uniform) {
  ranks_.load(weights_);
  WeightRanks::Leading kept{0, 0, sum};  // all of them
  if (count < weights_.size()) kept = ranks_.with_count(count);
  if (top_p < 1.0F) {
    const auto nucleus = ranks_.with_weight(static_cast<double>(top_p) * kept.weight);
    if (nucleus.is_shorter_than(kept)) kept = nucleus;
  }
  const auto drawn = ranks_.above_weight(uniform * kept.weight);
  return ranks_.last(drawn.is_shorter_than(kept) ? drawn : kept);
}

double uniform_at(uint64_t seed, uint64_t sample, uint64_t position) {
  const uint64_t bits = mix(mix(mix(seed) + sample) + position);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace tuft::engine
