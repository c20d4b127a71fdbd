// A bounded ring of records of variable size for one writing and one reading thread. Neither waits for the other: a
// full ring refuses records. Internal to telemetry.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tuft::telemetry::internal {

// Precedes each record in rings and in batches.
struct RecordHeader {
  uint32_t size = 0;  // includes this header; a multiple of 8
  uint32_t type = 0;
};

class ByteRing {
 public:
  // Requires `capacity` to be a power of two. Memory pages are touched at their first use.
  explicit ByteRing(size_t capacity)
      : capacity_(capacity), bytes_(std::make_unique_for_overwrite<std::byte[]>(capacity)) {}

  // Writer: returns contiguous room for a record of `size` bytes, including the header; null if the ring is full. The
  // caller fills in the header. The reader sees nothing before commit().
  std::byte* reserve(size_t size) {
    const size_t needed = round_up(size);
    size_t position = write_.load(std::memory_order_relaxed);
    const size_t to_end = capacity_ - (position & (capacity_ - 1));
    const size_t skipped = needed > to_end ? to_end : 0;
    if (!has_room(position, needed + skipped)) return nullptr;
    if (skipped != 0) {
      *header_at(position) = {static_cast<uint32_t>(skipped), kSkip};
      position += skipped;
    }
    reserved_end_ = position + needed;
    return &bytes_[position & (capacity_ - 1)];
  }
  void commit() { write_.store(reserved_end_, std::memory_order_release); }

  // Returns true if records that wait for the reader fill more than half of the ring.
  bool half_full() const {
    return write_.load(std::memory_order_relaxed) - read_.load(std::memory_order_relaxed) > capacity_ / 2;
  }

  // Reader: calls take(header, bytes of the whole record) for each record written so far, oldest first. Returns the
  // number of bytes that they occupied in the ring.
  template <typename Take>
  size_t drain(Take&& take) {
    const size_t end = write_.load(std::memory_order_acquire);
    const size_t begin = read_.load(std::memory_order_relaxed);
    size_t position = begin;
    while (position != end) {
      const RecordHeader* header = header_at(position);
      if (header->type != kSkip) take(*header, &bytes_[position & (capacity_ - 1)]);
      position += header->size;
      read_.store(position, std::memory_order_release);
    }
    return end - begin;
  }

  static constexpr size_t round_up(size_t size) { return (size + 7) & ~size_t{7}; }

 private:
  static constexpr uint32_t kSkip = 0xffffffff;

  RecordHeader* header_at(size_t position) {
    return reinterpret_cast<RecordHeader*>(&bytes_[position & (capacity_ - 1)]);
  }

  // The reader's position is in another thread's cache line: read it only if the last value seen is not enough.
  bool has_room(size_t position, size_t needed) {
    if (position + needed - read_seen_ <= capacity_) return true;
    read_seen_ = read_.load(std::memory_order_acquire);
    return position + needed - read_seen_ <= capacity_;
  }

  const size_t capacity_;
  const std::unique_ptr<std::byte[]> bytes_;
  alignas(64) std::atomic<size_t> write_{0};
  size_t reserved_end_ = 0;  // used by the writer only
  size_t read_seen_ = 0;     // used by the writer only
  alignas(64) std::atomic<size_t> read_{0};
};

}  // namespace tuft::telemetry::internal
