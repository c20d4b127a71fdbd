#include "engine/sample/distribution.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/mix.h"

namespace tuft::engine {
namespace {

constexpr size_t kBlock = 1024;
// Below it 1 / temperature exceeds the precision of a float, so the most likely token is chosen.
constexpr float kTemperatureMin = 1e-5F;

// exp for x <= 0 without a branch or a call, so that loops over the vocabulary vectorise. Relative error < 3e-7;
// below -87, where the result would be subnormal, it stays at exp(-87).
inline float exp_negative(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRoundMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  x = x < -87.0F ? -87.0F : x;
  const float n = (x * kLog2E + kRoundMagic) - kRoundMagic;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const int32_t exponent = (static_cast<int32_t>(n) + 127) << 23;
  return p * std::bit_cast<float>(exponent);
}

float maximum(std::span<const float> values) {
  float lanes[16];
  std::fill(std::begin(lanes), std::end(lanes), -INFINITY);
  size_t i = 0;
  for (; i + 16 <= values.size(); i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) lanes[lane] = std::max(lanes[lane], values[i + lane]);
  }
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(std::begin(lanes), std::end(lanes));
}

// The candidates of a draw are sorted up to this number; more are divided by their bits.
constexpr size_t kSortedMax = 1024;

}  // namespace

bool Distribution::load(std::span<const float> logits) {
  logits_ = logits;
  max_ = maximum(logits);
  if (!std::isfinite(max_)) return false;
  int32_t unordered = 0;
  for (const float x : logits) unordered |= static_cast<int32_t>(!(x <= max_));
  if (unordered != 0) return false;
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
  const size_t size = logits_.size();
  weights_.resize(size);
  block_sums_.clear();
  const float scale = 1.0F / temperature;
  double sum = 0;
  for (size_t begin = 0; begin < size; begin += kBlock) {
    const size_t end = std::min(size, begin + kBlock);
    for (size_t i = begin; i < end; ++i) weights_[i] = exp_negative((logits_[i] - max_) * scale);
    // Sixteen running sums instead of one, because the compiler must not reorder a float sum.
    float lanes[16] = {};
    size_t i = begin;
    for (; i + 16 <= end; i += 16) {
      for (size_t lane = 0; lane < 16; ++lane) lanes[lane] += weights_[i + lane];
    }
    for (; i < end; ++i) lanes[0] += weights_[i];
    double block = 0;
    for (const float lane : lanes) block += static_cast<double>(lane);
    block_sums_.push_back(block);
    sum += block;
  }
  temperature_ = temperature;
  sum_ = sum;
  return sum;
}

int32_t Distribution::draw(float temperature, int top_k, float top_p, double uniform) {
  if (temperature < kTemperatureMin) {
    const auto best = std::find(logits_.begin(), logits_.end(), max_);
    return static_cast<int32_t>(best - logits_.begin());
  }
  const double sum = temperature == temperature_ ? sum_ : fill_weights(temperature);
  const bool all = (top_k <= 0 || static_cast<size_t>(top_k) >= logits_.size()) && top_p >= 1.0F;
  return all ? draw_from_all(sum, uniform) : draw_from_some(sum, top_k, top_p, uniform);
}

int32_t Distribution::draw_from_all(double sum, double uniform) const {
  double left = uniform * sum;
  size_t block = 0;
  while (block + 1 < block_sums_.size() && left >= block_sums_[block]) left -= block_sums_[block++];
  const size_t begin = block * kBlock;
  const size_t end = std::min(weights_.size(), begin + kBlock);
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
    return draw_from_many(cut ? static_cast<size_t>(top_k) : weights_.size(), top_p, uniform);
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

// Sets candidates_ to tokens that include the nucleus: those below (1 - top_p) / vocabulary have at most 1 - top_p
// together. Returns false if they are too many to be sorted.
bool Distribution::gather_nucleus(double sum, float top_p) {
  const double floor = (1.0 - static_cast<double>(top_p)) * sum / static_cast<double>(weights_.size());
  const auto least = static_cast<float>(floor * 0.999);
  candidates_.clear();
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] < least) continue;
    if (candidates_.size() == kSortedMax) return false;
    candidates_.emplace_back(weights_[i], static_cast<int32_t>(i));
  }
  return true;
}

int32_t Distribution::draw_from_many(size_t count, float top_p, double uniform) {
  ranks_.load(weights_);
  WeightRanks::Leading kept = ranks_.with_count(count);
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
