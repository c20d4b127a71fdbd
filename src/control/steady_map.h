// A hash map for very many things behind one lock: it grows in small steps. std::unordered_map moves all that it has
// when it grows, which at a million entries takes a tenth of a second, and everybody waits. This is 256 of them, each
// of which moves its part alone.
//
// Not thread-safe. Pointers to values stay good until they are erased.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

namespace tuft::control {

template <typename Key, typename Value>
class SteadyMap {
 public:
  // Null: there is none.
  Value* find(const Key& key) {
    auto& part = part_of(key);
    const auto found = part.find(key);
    return found == part.end() ? nullptr : &found->second;
  }
  const Value* find(const Key& key) const { return const_cast<SteadyMap*>(this)->find(key); }

  // The value of `key`, and whether it is this one: false where it had one.
  std::pair<Value*, bool> emplace(const Key& key, Value value) {
    const auto [place, is_new] = part_of(key).emplace(key, std::move(value));
    size_ += is_new ? 1 : 0;
    return {&place->second, is_new};
  }

  // False: there was none.
  bool erase(const Key& key) {
    const bool erased = part_of(key).erase(key) > 0;
    size_ -= erased ? 1 : 0;
    return erased;
  }

  size_t size() const { return size_; }

 private:
  static constexpr int kPartBits = 8;

  // By the highest bits: the tables inside go by the rest.
  std::unordered_map<Key, Value>& part_of(const Key& key) {
    return parts_[std::hash<Key>()(key) >> (std::numeric_limits<size_t>::digits - kPartBits)];
  }

  std::array<std::unordered_map<Key, Value>, size_t{1} << kPartBits> parts_;
  size_t size_ = 0;
};

}  // namespace tuft::control
