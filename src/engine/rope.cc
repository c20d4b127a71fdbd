#include "engine/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tuft::engine {
namespace {

double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double original = scaling.original_max_position;
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth =
      (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// Returns the dimension that makes `rotations` full turns over the original context.
double yarn_dimension(double rotations, const ModelSpec& spec) {
  const double turns = spec.rope_scaling.original_max_position / (rotations * 2.0 * std::numbers::pi);
  return spec.head_dim * std::log(turns) / (2.0 * std::log(spec.rope_theta));
}

double yarn_frequency(double frequency, int index, const ModelSpec& spec) {
  const RopeScaling& scaling = spec.rope_scaling;
  double low = yarn_dimension(scaling.beta_fast, spec);
  double high = yarn_dimension(scaling.beta_slow, spec);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.head_dim - 1));
  if (low == high) high += 0.001;
  const double interpolated = std::clamp((index - low) / (high - low), 0.0, 1.0);
  return frequency / scaling.factor * interpolated + frequency * (1.0 - interpolated);
}

double scaled_frequency(double frequency, int index, const ModelSpec& spec) {
  switch (spec.rope_scaling.type) {
    case RopeScaling::Type::kNone:
      return frequency;
    case RopeScaling::Type::kLinear:
      return frequency / spec.rope_scaling.factor;
    case RopeScaling::Type::kLlama3:
      return llama3_frequency(frequency, spec.rope_scaling);
    case RopeScaling::Type::kYarn:
      return yarn_frequency(frequency, index, spec);
  }
  return frequency;
}

double attention_factor(const RopeScaling& scaling) {
  if (scaling.type != RopeScaling::Type::kYarn) return 1.0;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  return scaling.factor <= 1.0 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0;
}

}  // namespace

Rope::Rope(const ModelSpec& spec)
    : half_(spec.head_dim / 2), factor_(static_cast<float>(attention_factor(spec.rope_scaling))) {
  for (int i = 0; i < half_; ++i) {
    const double frequency = std::pow(spec.rope_theta, -2.0 * i / spec.head_dim);
    frequencies_.push_back(static_cast<float>(scaled_frequency(frequency, i, spec)));
  }
}

void Rope::extend(int count) {
  if (count <= count_) return;
  count = std::max(count, 2 * count_);  // decoding extends by one position at a time
  const size_t size = static_cast<size_t>(count) * static_cast<size_t>(half_);
  cosines_.reserve(size);
  sines_.reserve(size);
  for (int position = count_; position < count; ++position) {
    for (const float frequency : frequencies_) {
      const float angle = static_cast<float>(position) * frequency;
      cosines_.push_back(std::cos(angle) * factor_);
      sines_.push_back(std::sin(angle) * factor_);
    }
  }
  count_ = count;
}

}  // namespace tuft::engine
