#include "base/testing/failing_allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

thread_local int64_t skip = -1;  // allocations that still pass; -1: all
thread_local bool every = false;
thread_local bool failed = false;

void* allocate(std::size_t size) {
  if (skip >= 0 && skip-- == 0) {
    if (every) skip = 0;
    failed = true;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void* allocate_or_null(std::size_t size) {
  try {
    return allocate(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

namespace tuft {

void FailingAllocations::start(int64_t skipped, Which which) {
  failed = false;
  every = which == Which::kAllAfter;
  skip = skipped;
}

bool FailingAllocations::stop() {
  skip = -1;
  return std::exchange(failed, false);
}

}  // namespace tuft

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

#ifdef TUFT_SANITIZE_ADDRESS
// Shared libraries may take operator new from the sanitizer and operator delete from here. It reads this at its start.
extern "C" const char* __asan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "alloc_dealloc_mismatch=0";
}
#endif
