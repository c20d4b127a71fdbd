// A Bloom filter of hashes. Internal to telemetry_store.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tuft::telemetry_store::internal {

class Bloom {
 public:
  // An empty filter, which may contain everything.
  Bloom() = default;
  // About 12 bits for each of `count` hashes, 1 KiB to 64 KiB.
  explicit Bloom(size_t count) {
    words_.resize(std::bit_ceil(std::clamp<size_t>(count * 12 / 64, kWordsMin, kWordsMax)));
  }

  void add(uint64_t hash) {
    for (int i = 0; i < kProbes; ++i, hash = next(hash)) words_[word_of(hash)] |= bit_of(hash);
  }
  bool may_contain(uint64_t hash) const {
    if (words_.empty()) return true;
    for (int i = 0; i < kProbes; ++i, hash = next(hash)) {
      if ((words_[word_of(hash)] & bit_of(hash)) == 0) return false;
    }
    return true;
  }

  std::string_view bytes() const { return {reinterpret_cast<const char*>(words_.data()), words_.size() * 8}; }
  // Returns false if no filter has this size.
  bool assign(std::string_view bytes) {
    const size_t words = bytes.size() / 8;
    if (bytes.size() % 8 != 0 || !std::has_single_bit(words) || words < kWordsMin || words > kWordsMax) return false;
    words_.resize(words);
    std::memcpy(words_.data(), bytes.data(), bytes.size());
    return true;
  }

  static constexpr size_t kBytesMax = size_t{64} << 10;

 private:
  static constexpr int kProbes = 4;
  static constexpr size_t kWordsMin = 128;
  static constexpr size_t kWordsMax = kBytesMax / 8;

  static uint64_t next(uint64_t hash) { return hash * 0x9e3779b97f4a7c15 + 0x632be59bd9b4e019; }
  size_t word_of(uint64_t hash) const { return hash >> 40 & (words_.size() - 1); }
  static uint64_t bit_of(uint64_t hash) { return uint64_t{1} << (hash >> 34 & 63); }

  std::vector<uint64_t> words_;
};

}  // namespace tuft::telemetry_store::internal
