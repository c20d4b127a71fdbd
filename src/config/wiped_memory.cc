#include "config/wiped_memory.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>

namespace {

#if defined(TUFT_SANITIZE_ADDRESS) || defined(TUFT_SANITIZE_THREAD)
constexpr bool kIsPossible = false;
#else
constexpr bool kIsPossible = true;
#endif

thread_local int wipes = 0;  // objects of this thread

// A function of its own, so that its frame lies where those of the functions that were called before did. Then it
// copies zeros in sizes for which memcpy() uses different registers: what is left in one would be saved on the stack
// again.
[[gnu::noinline]] void wipe_stack() {
  char below[64 << 10];
  explicit_bzero(below, sizeof below);
  for (size_t size = 1; size <= sizeof below / 2; size += size / 2 + 1) {
    std::memcpy(below, below + sizeof below / 2, size);
    asm volatile("" : : "r"(below) : "memory");  // the copy is not left out
  }
}

}  // namespace

#if !defined(TUFT_SANITIZE_ADDRESS) && !defined(TUFT_SANITIZE_THREAD)
// These replace functions of the standard library, to which its delete[] leads. Its operator new takes memory from
// malloc(), so it is not replaced.
void operator delete(void* memory) noexcept {  // NOLINT(misc-new-delete-overloads)
  if (wipes > 0 && memory != nullptr) explicit_bzero(memory, malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {  // NOLINT(misc-new-delete-overloads)
  ::operator delete(memory);
}
#endif

namespace tuft::config {

WipesFreedMemory::WipesFreedMemory() {
  ++wipes;
}
WipesFreedMemory::~WipesFreedMemory() {
  if (--wipes == 0) wipe_stack();
}
bool WipesFreedMemory::is_possible() {
  return kIsPossible;
}

}  // namespace tuft::config
