// Interleaving: a source of decisions for tests that run the steps of several threads on one, in an order that a seed
// decides. A test asks it which step comes next. The same seed gives the same decisions, so that a failure is repeated.
//
// The environment variable TUFT_INTERLEAVINGS sets how many seeds a test runs (`./dev lab interleavings` takes many),
// and TUFT_INTERLEAVING_SEED runs one seed alone and prints its steps.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace tuft::testing {

class Interleaving {
 public:
  explicit Interleaving(uint64_t seed, bool prints = false) : random_(seed), prints_(prints) {}

  // Returns a number below `count`, which is at least 1.
  size_t below(size_t count) { return static_cast<size_t>(random_() % count); }
  // Returns true `percent` times of 100.
  bool happens(unsigned percent) { return random_() % 100 < percent; }
  // Counts a step, and prints it if only its seed runs.
  void step(const std::string& name) {
    ++steps_;
    if (prints_) std::fprintf(stderr, "%6lld %s\n", static_cast<long long>(steps_), name.c_str());
  }
  int64_t steps() const { return steps_; }

 private:
  std::mt19937_64 random_;  // its numbers are those of the standard on every platform
  const bool prints_;
  int64_t steps_ = 0;
};

// Calls run(Interleaving&) for each seed, until one fails. Prints the number of steps of all seeds.
template <typename Run>
void for_each_interleaving(int64_t seeds, const Run& run) {
  const char* only = std::getenv("TUFT_INTERLEAVING_SEED");
  if (const char* asked = std::getenv("TUFT_INTERLEAVINGS")) seeds = std::atoll(asked);
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t last = only != nullptr ? first : static_cast<uint64_t>(seeds);
  int64_t steps = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + "; repeat it with TUFT_INTERLEAVING_SEED=" + std::to_string(seed));
    Interleaving interleaving(seed, only != nullptr);
    run(interleaving);
    steps += interleaving.steps();
    if (::testing::Test::HasFailure()) break;
  }
  std::printf("interleavings: %llu seeds, %lld steps\n", static_cast<unsigned long long>(last - first + 1),
              static_cast<long long>(steps));
}

}  // namespace tuft::testing
