#include "telemetry_store/string_table.h"

#include "base/id.h"
#include "telemetry_store/hash.h"

namespace tuft::telemetry_store::internal {
namespace {

uint32_t place_of(std::string_view text) {
  static const uint64_t seed = random_u64();
  return static_cast<uint32_t>(hash_of(text, seed));
}

}  // namespace

uint32_t string_hash(std::string_view text) {
  return static_cast<uint32_t>(hash_of(cut_string(text)));
}

StringTable::StringTable() : slots_(1024) {
  intern({});
}

size_t StringTable::slot_of(std::string_view text, uint32_t place) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = place & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] == 0) return slot;
    const uint32_t number = slots_[slot] - 1;
    if (places_[number] == place && this->text(number) == text) return slot;
  }
}

uint32_t StringTable::intern(std::string_view whole) {
  const std::string_view text = cut_string(whole);
  const uint32_t place = place_of(text);
  const size_t slot = slot_of(text, place);
  if (slots_[slot] != 0) return slots_[slot] - 1;
  blob_ += text;
  ends_.push_back(static_cast<uint32_t>(blob_.size()));
  hashes_.push_back(string_hash(text));
  places_.push_back(place);
  slots_[slot] = static_cast<uint32_t>(hashes_.size());
  if (hashes_.size() * 2 > slots_.size()) grow();
  return static_cast<uint32_t>(hashes_.size() - 1);
}

std::optional<uint32_t> StringTable::find(std::string_view whole) const {
  const std::string_view text = cut_string(whole);
  const uint32_t found = slots_[slot_of(text, place_of(text))];
  if (found == 0) return std::nullopt;
  return found - 1;
}

std::string_view StringTable::text(uint32_t number) const {
  if (number >= ends_.size()) return {};
  const uint32_t begin = number == 0 ? 0 : ends_[number - 1];
  return std::string_view(blob_).substr(begin, ends_[number] - begin);
}

size_t StringTable::bytes() const {
  return blob_.capacity() + 4 * (ends_.capacity() + hashes_.capacity() + places_.capacity() + slots_.capacity());
}

void StringTable::grow() {
  std::vector<uint32_t> slots(slots_.size() * 2);
  const size_t mask = slots.size() - 1;
  for (uint32_t number = 0; number < hashes_.size(); ++number) {
    size_t slot = places_[number] & mask;
    while (slots[slot] != 0) slot = (slot + 1) & mask;
    slots[slot] = number + 1;
  }
  slots_ = std::move(slots);
}

}  // namespace tuft::telemetry_store::internal
