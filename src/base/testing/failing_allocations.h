// FailingAllocations makes operator new of the calling thread throw std::bad_alloc, for tests of what a lack of memory
// does. A test program that uses it lists failing_allocations.cc among its sources.
#pragma once

#include <cstdint>

namespace tuft {

class FailingAllocations {
 public:
  enum class Which : uint8_t { kOne, kAllAfter };

  // Lets `skipped` allocations pass, then fails one of them or all. At most one object for each thread at a time.
  explicit FailingAllocations(int64_t skipped, Which which = Which::kOne) { start(skipped, which); }
  ~FailingAllocations() { stop(); }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  // As constructor and destructor, where the scope of one object does not suit. stop() returns whether one failed.
  static void start(int64_t skipped, Which which = Which::kOne);
  static bool stop();
};

}  // namespace tuft
