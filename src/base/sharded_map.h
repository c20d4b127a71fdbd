// A hash map for very many entries under one lock. std::unordered_map rehashes all entries when it grows, which takes
// 0.1 s for a million entries while all other threads wait. This map consists of 256 shards that grow separately.
//
// Not thread-safe. A pointer to a value is valid until the value is erased.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

namespace tuft {

template <typename Key, typename Value>
class ShardedMap {
 public:
  // Returns null if there is no such key.
  Value* find(const Key& key) {
    auto& part = part_of(key);
    const auto found = part.find(key);
    return found == part.end() ? nullptr : &found->second;
  }
  const Value* find(const Key& key) const { return const_cast<ShardedMap*>(this)->find(key); }

  // Returns the value of `key`, and true if it was inserted, false if the key already had a value.
  std::pair<Value*, bool> emplace(const Key& key, Value value) {
    const auto [entry, is_new] = part_of(key).emplace(key, std::move(value));
    size_ += is_new ? 1 : 0;
    return {&entry->second, is_new};
  }

  // Returns false if there was no such key.
  bool erase(const Key& key) {
    const bool erased = part_of(key).erase(key) > 0;
    size_ -= erased ? 1 : 0;
    return erased;
  }

  size_t size() const { return size_; }

 private:
  static constexpr int kPartBits = 8;

  // Selects by the highest bits of the hash; the tables use the lower bits.
  std::unordered_map<Key, Value>& part_of(const Key& key) {
    return parts_[std::hash<Key>()(key) >> (std::numeric_limits<size_t>::digits - kPartBits)];
  }

  std::array<std::unordered_map<Key, Value>, size_t{1} << kPartBits> parts_;
  size_t size_ = 0;
};

}  // namespace tuft
