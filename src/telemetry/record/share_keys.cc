#include "telemetry/record/share_keys.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "telemetry/record/per_process.h"
#include "telemetry/record/recorder.h"

namespace tuft::telemetry::internal {
namespace {

// The number given last. A child of fork() goes on from it, so that it takes no number of its parent for one of its
// own. Written under the table's mutex.
uint32_t g_last = 0;

using Sets = std::unordered_map<uint32_t, std::shared_ptr<const ShareKeys>>;

struct KeyTable {
  // Lets the set be replaced, and returns the one that it replaces.
  Sets::node_type release_locked(uint32_t number) TUFT_REQUIRES(mutex) {
    const uint32_t oldest = std::exchange(released[next], number);
    next = (next + 1) % released.size();
    return kept.extract(oldest);
  }

  Mutex mutex;
  Sets kept TUFT_GUARDED_BY(mutex);
  // The numbers of the sets that can be replaced, in a ring, of which `next` is the oldest; 0: none.
  std::vector<uint32_t> released TUFT_GUARDED_BY(mutex) = std::vector<uint32_t>(kShareKeySetsMax);
  size_t next TUFT_GUARDED_BY(mutex) = 0;
};

bool has(const ShareKeys& set, std::string_view key) {
  return std::find(set.keys.begin(), set.keys.begin() + static_cast<ptrdiff_t>(set.count), key) !=
         set.keys.begin() + static_cast<ptrdiff_t>(set.count);
}

void add(ShareKeys& set, std::string_view key, std::string_view value) {
  if (set.count == kShareKeysMax || value.empty() || has(set, key)) return;
  set.keys[set.count] = key;
  set.texts += cut_utf8(value, kShareKeyBytesMax);
  set.ends[set.count++] = static_cast<uint16_t>(set.texts.size());
}

}  // namespace

uint32_t keep_share_keys(Attributes keys, uint32_t inherited) {
  if (keys.size() == 0) return inherited;
  auto made = std::make_shared<ShareKeys>();
  for (const Attribute& attribute : keys) {
    if (attribute.value.kind() == AttributeValue::Kind::kString)
      add(*made, attribute.key.view(), attribute.value.as_string());
  }
  if (made->count == 0) return inherited;
  if (const auto above = kept_share_keys(inherited)) {
    for (size_t i = 0; i < above->count; ++i) add(*made, above->keys[i], above->value(i));
  }
  KeyTable& table = PerProcess<KeyTable>::get();
  MutexLock lock(table.mutex);
  // 0 is not a number. After four billion sets the count starts again, and passes over those that are still kept.
  do {
    ++g_last;
  } while (g_last == 0 || table.kept.contains(g_last));
  table.kept.emplace(g_last, std::move(made));
  return g_last;
}

void release_share_keys(uint32_t number) {
  if (number == 0) return;
  Sets::node_type replaced;  // destroyed without the lock
  KeyTable& table = PerProcess<KeyTable>::get();
  MutexLock lock(table.mutex);
  if (table.kept.contains(number)) replaced = table.release_locked(number);
}

std::shared_ptr<const ShareKeys> kept_share_keys(uint32_t number) {
  if (number == 0) return nullptr;
  KeyTable& table = PerProcess<KeyTable>::get();
  MutexLock lock(table.mutex);
  const auto found = table.kept.find(number);
  return found == table.kept.end() ? nullptr : found->second;
}

}  // namespace tuft::telemetry::internal
