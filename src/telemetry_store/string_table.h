// The distinct strings of a segment, numbered in the order of their arrival. Internal to telemetry_store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tuft::telemetry_store::internal {

// A longer string enters the dictionary by its beginning.
inline constexpr size_t kStringBytesMax = 512;

// Number 0 is the empty string.
class StringTable {
 public:
  StringTable();
  uint32_t intern(std::string_view text);
  std::optional<uint32_t> find(std::string_view text) const;
  std::string_view text(uint32_t number) const;
  size_t count() const { return hashes_.size(); }
  size_t bytes() const;

  // The content as arrays for the index file: text i is blob[ends[i - 1], ends[i]).
  const std::vector<uint32_t>& ends() const { return ends_; }
  const std::vector<uint32_t>& hashes() const { return hashes_; }
  std::string_view blob() const { return blob_; }

 private:
  void grow();
  // Returns the slot of the text, or the empty slot where it belongs.
  size_t slot_of(std::string_view text, uint32_t place) const;

  std::string blob_;
  std::vector<uint32_t> ends_;
  std::vector<uint32_t> hashes_;
  // Hashes with a seed of the process decide the slots, so that nobody can send strings that all share one.
  std::vector<uint32_t> places_;
  std::vector<uint32_t> slots_;  // number + 1; 0: empty
};

// The hash of a dictionary's text, cut to kStringBytesMax.
uint32_t string_hash(std::string_view text);
// Returns `text` cut as intern() cuts it.
inline std::string_view cut_string(std::string_view text) {
  return text.substr(0, kStringBytesMax);
}

}  // namespace tuft::telemetry_store::internal
