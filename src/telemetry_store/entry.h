// The form of a segment file: entries one after another, each with a checksum. See docs/formats/telemetry-store.md.
// Internal to telemetry_store.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "telemetry_store/hash.h"

namespace tuft::telemetry_store::internal {

enum class EntryType : uint8_t { kContext = 1, kSpan = 2, kLog = 3, kSteps = 4, kSeries = 5, kPoints = 6 };

struct EntryHead {
  uint32_t magic = kMagic;
  uint32_t sum = 0;
  uint32_t size_and_type = 0;  // size of the content << 4 | type
  uint32_t context = 0;        // the number of a context; of other entries a number of their own
  static constexpr uint32_t kMagic = 0x54667465;
};
static_assert(sizeof(EntryHead) == 16);
inline constexpr size_t kEntryBytesMax = size_t{1} << 20;

inline uint32_t entry_sum(EntryType type, uint32_t context, std::string_view content) {
  return static_cast<uint32_t>(hash_of(content, uint64_t{context} << 8 | static_cast<uint64_t>(type)));
}

// Appends an entry, and returns its checksum. `content` has at most kEntryBytesMax bytes.
inline uint32_t append_entry(std::string& out, EntryType type, uint32_t context, std::string_view content) {
  EntryHead head;
  head.sum = entry_sum(type, context, content);
  head.size_and_type = static_cast<uint32_t>(content.size()) << 4 | static_cast<uint32_t>(type);
  head.context = context;
  out.append(reinterpret_cast<const char*>(&head), sizeof head);
  out += content;
  return head.sum;
}

struct Entry {
  EntryType type = EntryType::kContext;
  uint32_t context = 0;
  uint32_t sum = 0;
  size_t position = 0;  // of the content in the file
  std::string_view content;
};

// Calls `visit` with every whole entry. Skips what is damaged, up to the next entry whose checksum is right, and
// returns how many bytes it skipped. A torn tail counts, too.
size_t read_entries(std::string_view file, const std::function<void(const Entry&)>& visit);

}  // namespace tuft::telemetry_store::internal
