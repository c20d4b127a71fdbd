// Memory for arithmetic: 64-byte aligned, on huge pages if it is large, and readable for kSlack bytes past its end,
// because kernels load whole vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace tuft::engine::native {

inline constexpr size_t kSlack = 256;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// Returns zeroed bytes if `zero`, else undefined ones. The slack is always zero. Throws std::bad_alloc.
std::unique_ptr<void, FreeMemory> allocate_bytes(size_t bytes, bool zero);

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size, bool zero = false) : memory_(allocate_bytes(size * sizeof(T), zero)), size_(size) {}

  // Makes room for `size` values. Discards the contents if it must grow. Throws std::bad_alloc.
  T* reserve(size_t size) {
    if (size > size_) *this = Buffer(size);
    return data();
  }

  T* data() { return static_cast<T*>(memory_.get()); }
  const T* data() const { return static_cast<const T*>(memory_.get()); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  std::unique_ptr<void, FreeMemory> memory_;
  size_t size_ = 0;
};

using Floats = Buffer<float>;

// Returns the number of values of a matrix.
inline size_t floats(int rows, int columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}
// Returns where a row of a matrix begins, in values.
inline ptrdiff_t offset(int row, int columns) {
  return static_cast<ptrdiff_t>(row) * columns;
}

}  // namespace tuft::engine::native
