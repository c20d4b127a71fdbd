#include "config/wiped_memory.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsPossible = false;
#else
constexpr bool kIsPossible = true;
#endif

thread_local int wipes = 0;  // objects of this thread

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
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
  --wipes;
}
bool WipesFreedMemory::is_possible() {
  return kIsPossible;
}

}  // namespace tuft::config
