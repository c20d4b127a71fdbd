#include "telemetry_store/entry.h"

#include <cstring>

namespace tuft::telemetry_store::internal {
namespace {

// What is spent on entries that turn out to be none, so that a file made for it cannot take minutes.
constexpr size_t kFailedBytesMax = size_t{64} << 20;

// Reads the entry at the start of `rest`. Returns false if there is none. Adds what was checked in vain to `failed`.
bool read_entry(std::string_view rest, Entry& out, size_t& failed) {
  EntryHead head;
  if (rest.size() < sizeof head) return false;
  std::memcpy(&head, rest.data(), sizeof head);
  const size_t size = head.size_and_type >> 4;
  if (head.magic != EntryHead::kMagic || size > kEntryBytesMax || size > rest.size() - sizeof head) return false;
  out.type = static_cast<EntryType>(head.size_and_type & 15);
  out.context = head.context;
  out.sum = head.sum;
  out.content = rest.substr(sizeof head, size);
  if (entry_sum(out.type, out.context, out.content) == head.sum) return true;
  failed += size;
  return false;
}

}  // namespace

size_t read_entries(std::string_view file, const std::function<void(const Entry&)>& visit) {
  const uint32_t magic = EntryHead::kMagic;
  const std::string_view mark(reinterpret_cast<const char*>(&magic), sizeof magic);
  size_t skipped = 0;
  size_t at = 0;
  size_t failed = 0;
  while (at < file.size()) {
    Entry entry;
    if (failed > kFailedBytesMax) return skipped + file.size() - at;
    if (read_entry(file.substr(at), entry, failed)) {
      entry.position = at + sizeof(EntryHead);
      visit(entry);
      at = entry.position + entry.content.size();
      continue;
    }
    const size_t next = file.find(mark, at + 1);
    const size_t end = next == std::string_view::npos ? file.size() : next;
    skipped += end - at;
    at = end;
  }
  return skipped;
}

}  // namespace tuft::telemetry_store::internal
