// Exponential histograms with base 2, as OpenTelemetry's data model defines them. Internal to telemetry.
//
// At scale s the bucket of index i holds the values in (b^i, b^(i+1)] with b = 2^(2^-s). A series begins at scale 20
// and halves its resolution whenever more than 160 consecutive buckets would be needed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tuft::telemetry::internal {

inline constexpr int32_t kExponentialScaleMax = 20;
inline constexpr size_t kExponentialBucketsMax = 160;

// Returns the index of the bucket at scale 20 of a positive finite value. A subnormal value counts as the smallest
// normal one. The index at a lower scale s is this one, shifted right by 20 - s.
int32_t exponential_index(double value);

// The counts of consecutive buckets, of which the first has the index `offset`. Without counts the offset is 0.
struct ExponentialBuckets {
  int32_t offset = 0;
  std::vector<uint64_t> counts = {};

  friend bool operator==(const ExponentialBuckets&, const ExponentialBuckets&) = default;
};

struct ExponentialPoint {
  int32_t scale = kExponentialScaleMax;
  uint64_t zero_count = 0;
  ExponentialBuckets positive = {};
  ExponentialBuckets negative = {};  // by the absolute values

  uint64_t count() const;
  friend bool operator==(const ExponentialPoint&, const ExponentialPoint&) = default;
};

// Returns what `now` counted in addition to `before`, an earlier reading of the same series, at the lower scale of the
// two.
ExponentialPoint exponential_difference(ExponentialPoint now, ExponentialPoint before);

// The buckets of one sign. Thread-safe and without locks: a change of scale publishes a new generation of buckets, and
// a thread that still counts into an older one loses nothing, because a reading adds all generations. Each generation
// has a lower scale than the one before, so that there are at most 25 (1.3 KB each), and usually three or four.
class ExponentialCounts {
 public:
  ExponentialCounts() = default;
  ~ExponentialCounts();
  ExponentialCounts(const ExponentialCounts&) = delete;
  ExponentialCounts& operator=(const ExponentialCounts&) = delete;

  // `index`: at scale 20.
  void add(int32_t index, uint64_t count);
  // Sets `scale` to that of the result.
  ExponentialBuckets read(int32_t& scale) const;
  // Requires: called in a child of fork(), which has one thread.
  void reset();

 private:
  struct Generation;

  std::atomic<Generation*> newest_{nullptr};
};

// Both signs and zero.
class ExponentialHistogram {
 public:
  // `value` must be finite.
  void add(double value, uint64_t count);
  ExponentialPoint read() const;
  void reset();

 private:
  ExponentialCounts positive_;
  ExponentialCounts negative_;
  std::atomic<uint64_t> zeros_{0};
};

}  // namespace tuft::telemetry::internal
