#include "telemetry/metric/exponential.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

namespace tuft::telemetry::internal {
namespace {

// The indices of the first and the last bucket in use.
struct Range {
  int32_t low = 0;
  int32_t high = 0;

  bool fits() const { return int64_t{high} - low < static_cast<int64_t>(kExponentialBucketsMax); }
  Range with(int32_t index) const { return {std::min(low, index), std::max(high, index)}; }
  Range coarser(int32_t by) const { return {low >> by, high >> by}; }
};

uint64_t packed(Range range) {
  return uint64_t{static_cast<uint32_t>(range.low)} << 32 | static_cast<uint32_t>(range.high);
}

Range unpacked(uint64_t bits) {
  return {static_cast<int32_t>(bits >> 32), static_cast<int32_t>(bits)};
}

// Buckets in use are at most kExponentialBucketsMax apart, so that no two of them share a place.
size_t place_of(int32_t index) {
  constexpr int64_t kSize = kExponentialBucketsMax;
  return static_cast<size_t>((index % kSize + kSize) % kSize);
}

// Returns by how much the scale must fall until the range fits.
int32_t steps_to_fit(Range range) {
  int32_t steps = 0;
  while (!range.coarser(steps).fits()) ++steps;
  return steps;
}

void lower_scale(ExponentialBuckets& buckets, int32_t by) {
  if (by == 0 || buckets.counts.empty()) return;
  const int32_t offset = buckets.offset >> by;
  const auto last = buckets.offset + static_cast<int32_t>(buckets.counts.size()) - 1;
  std::vector<uint64_t> counts(static_cast<size_t>((last >> by) - offset + 1));
  for (size_t i = 0; i < buckets.counts.size(); ++i)
    counts[static_cast<size_t>(((buckets.offset + static_cast<int32_t>(i)) >> by) - offset)] += buckets.counts[i];
  buckets = {offset, std::move(counts)};
}

void lower_scale(ExponentialPoint& point, int32_t scale) {
  lower_scale(point.positive, point.scale - scale);
  lower_scale(point.negative, point.scale - scale);
  point.scale = scale;
}

void subtract(ExponentialBuckets& now, const ExponentialBuckets& before) {
  for (size_t i = 0; i < now.counts.size(); ++i) {
    const int64_t at = int64_t{now.offset} + static_cast<int64_t>(i) - before.offset;
    if (at < 0 || at >= static_cast<int64_t>(before.counts.size())) continue;
    now.counts[i] -= std::min(now.counts[i], before.counts[static_cast<size_t>(at)]);
  }
  while (!now.counts.empty() && now.counts.back() == 0) now.counts.pop_back();
  const auto first = std::find_if(now.counts.begin(), now.counts.end(), [](uint64_t count) { return count != 0; });
  now.offset = now.counts.empty() ? 0 : now.offset + static_cast<int32_t>(first - now.counts.begin());
  now.counts.erase(now.counts.begin(), first);
}

uint64_t total(const ExponentialBuckets& buckets) {
  return std::accumulate(buckets.counts.begin(), buckets.counts.end(), uint64_t{0});
}

}  // namespace

int32_t exponential_index(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::max(value, std::numeric_limits<double>::min()), &exponent);
  // Buckets include their upper bound: a power of two is the last value of its bucket. Computed without rounding.
  if (fraction == 0.5) return ((exponent - 1) << kExponentialScaleMax) - 1;
  const double within = std::log2(fraction) + 1;  // 0 .. 1
  const auto step = static_cast<int32_t>(std::ceil(std::ldexp(within, kExponentialScaleMax))) - 1;
  // A value just above a power of two must not fall below it, nor one just below it above.
  return ((exponent - 1) << kExponentialScaleMax) + std::clamp(step, 0, (1 << kExponentialScaleMax) - 1);
}

uint64_t ExponentialPoint::count() const {
  return zero_count + total(positive) + total(negative);
}

ExponentialPoint exponential_difference(ExponentialPoint now, ExponentialPoint before) {
  const int32_t scale = std::min(now.scale, before.scale);
  lower_scale(now, scale);
  lower_scale(before, scale);
  now.zero_count -= std::min(now.zero_count, before.zero_count);
  subtract(now.positive, before.positive);
  subtract(now.negative, before.negative);
  return now;
}

struct ExponentialCounts::Generation {
  Generation(Generation* older, int32_t its_scale, Range its_range)
      : before(older), scale(its_scale), range(packed(its_range)) {}

  int32_t index_of(int32_t index) const { return index >> (kExponentialScaleMax - scale); }

  // Extends the range to the bucket. Returns false if it does not fit.
  bool include(int32_t index) {
    uint64_t seen = range.load(std::memory_order_relaxed);
    for (;;) {
      const Range wanted = unpacked(seen).with(index);
      if (!wanted.fits()) return false;
      if (packed(wanted) == seen) return true;
      if (range.compare_exchange_weak(seen, packed(wanted), std::memory_order_relaxed)) return true;
    }
  }

  Generation* const before;
  const int32_t scale;
  std::atomic<uint64_t> range;
  std::array<std::atomic<uint64_t>, kExponentialBucketsMax> counts{};
};

ExponentialCounts::~ExponentialCounts() {
  for (Generation* one = newest_.load(); one != nullptr;) {
    const std::unique_ptr<Generation> done(one);
    one = done->before;
  }
}

void ExponentialCounts::add(int32_t index, uint64_t count) {
  for (;;) {
    Generation* newest = newest_.load(std::memory_order_acquire);
    int32_t scale = kExponentialScaleMax;
    Range range{index, index};
    if (newest != nullptr) {
      const int32_t at = newest->index_of(index);
      if (newest->include(at)) {
        newest->counts[place_of(at)].fetch_add(count, std::memory_order_relaxed);
        return;
      }
      range = unpacked(newest->range.load(std::memory_order_relaxed)).with(at);
      const int32_t steps = steps_to_fit(range);
      range = range.coarser(steps);
      scale = newest->scale - steps;
    }
    auto made = std::make_unique<Generation>(newest, scale, range);
    if (newest_.compare_exchange_strong(newest, made.get(), std::memory_order_acq_rel))
      static_cast<void>(made.release());
  }
}

ExponentialBuckets ExponentialCounts::read(int32_t& scale) const {
  const Generation* const newest = newest_.load(std::memory_order_acquire);
  scale = newest == nullptr ? kExponentialScaleMax : newest->scale;
  std::map<int32_t, uint64_t> counts;
  for (const Generation* one = newest; one != nullptr; one = one->before) {
    const Range range = unpacked(one->range.load(std::memory_order_relaxed));
    for (int32_t index = range.low; index <= range.high; ++index) {
      const uint64_t count = one->counts[place_of(index)].load(std::memory_order_relaxed);
      if (count != 0) counts[index >> (one->scale - scale)] += count;
    }
  }
  if (counts.empty()) return {};
  // An older generation may have grown while the newest one was made.
  const Range all{counts.begin()->first, counts.rbegin()->first};
  const int32_t steps = steps_to_fit(all);
  scale -= steps;
  const Range fitting = all.coarser(steps);
  ExponentialBuckets out{.offset = fitting.low,
                         .counts = std::vector<uint64_t>(static_cast<size_t>(fitting.high - fitting.low + 1))};
  for (const auto& [index, count] : counts) out.counts[static_cast<size_t>((index >> steps) - fitting.low)] += count;
  return out;
}

void ExponentialCounts::reset() {
  // The generations are leaked with what another thread of the parent may have been writing.
  newest_ = nullptr;
}

void ExponentialHistogram::add(double value, uint64_t count) {
  if (value == 0) {
    zeros_.fetch_add(count, std::memory_order_relaxed);
  } else if (value > 0) {
    positive_.add(exponential_index(value), count);
  } else {
    negative_.add(exponential_index(-value), count);
  }
}

ExponentialPoint ExponentialHistogram::read() const {
  ExponentialPoint point;
  point.zero_count = zeros_.load(std::memory_order_relaxed);
  int32_t positive = 0;
  int32_t negative = 0;
  point.positive = positive_.read(positive);
  point.negative = negative_.read(negative);
  point.scale = std::min(positive, negative);
  lower_scale(point.positive, positive - point.scale);
  lower_scale(point.negative, negative - point.scale);
  return point;
}

void ExponentialHistogram::reset() {
  positive_.reset();
  negative_.reset();
  zeros_ = 0;
}

}  // namespace tuft::telemetry::internal
