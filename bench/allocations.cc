// Counts calls of operator new. It is a separate file, because GCC's check of matching allocation functions fails if
// the operators are inlined into their callers.
#include <cstdint>
#include <cstdlib>
#include <new>

#include "recording_runner.h"

namespace {

constinit thread_local uint64_t t_allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
  ++t_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

uint64_t tuft::bench::allocations() {
  return t_allocations;
}
