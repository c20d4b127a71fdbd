// A lack of memory at any allocation of libtorch on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace tuft::engine {

// While it exists, libtorch gets memory `count` times, and once none.
class MemoryRunsOut final : public c10::Allocator {
 public:
  explicit MemoryRunsOut(int count) : left_(count) { c10::SetCPUAllocator(this, kPriority); }
  ~MemoryRunsOut() override { c10::SetCPUAllocator(&all_, kPriority); }
  MemoryRunsOut(const MemoryRunsOut&) = delete;
  MemoryRunsOut& operator=(const MemoryRunsOut&) = delete;
  bool happened() const { return left_ < 0; }

#if TUFT_TORCH_VERSION >= 20300
  c10::DataPtr allocate(size_t bytes) override { return take(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
#else
  c10::DataPtr allocate(size_t bytes) const override { return take(bytes); }
#endif

 private:
  c10::DataPtr take(size_t bytes) const {
    if (left_-- == 0) throw std::bad_alloc();
    return all_.allocate(bytes);
  }

  static constexpr uint8_t kPriority = 1;
  c10::Allocator& all_ = *c10::GetDefaultCPUAllocator();
  mutable int left_;
};

}  // namespace tuft::engine
