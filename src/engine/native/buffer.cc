#include "engine/native/buffer.h"

#include <cstring>
#include <new>
#include <sys/mman.h>

namespace tuft::engine::native {

std::unique_ptr<void, FreeMemory> allocate_bytes(size_t bytes, bool zero) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t wanted = bytes + kSlack;
  const size_t alignment = wanted >= 2 * kHugePage ? kHugePage : 64;
  const size_t rounded = (wanted + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  std::unique_ptr<void, FreeMemory> owner(memory);
  if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
  if (zero) {
    std::memset(memory, 0, wanted);
  } else {
    std::memset(static_cast<char*>(memory) + bytes, 0, kSlack);
  }
  return owner;
}

}  // namespace tuft::engine::native
