#include "telemetry/record/share_keys.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/mutex.h"
#include "telemetry/record/per_process.h"
#include "telemetry/record/recorder.h"

namespace tuft::telemetry::internal {
namespace {

// The number given last. A child of fork() goes on from it, so that it takes no number of its parent for one of its
// own. Written under the table's mutex.
uint32_t g_last = 0;

struct KeyTable {
  Mutex mutex;
  // The first one has the number `oldest`, the others follow without gaps.
  std::deque<std::shared_ptr<const ShareKeys>> kept TUFT_GUARDED_BY(mutex);
  uint32_t oldest TUFT_GUARDED_BY(mutex) = g_last + 1;
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
  std::shared_ptr<const ShareKeys> replaced;  // destroyed without the lock
  KeyTable& table = PerProcess<KeyTable>::get();
  MutexLock lock(table.mutex);
  // 0 is not a number. After four billion sets the count starts again, and those of before are forgotten.
  if (table.oldest + static_cast<uint32_t>(table.kept.size()) == 0) {
    table.kept.clear();
    table.oldest = 1;
  }
  if (table.kept.size() == kShareKeySetsMax) {
    replaced = std::move(table.kept.front());
    table.kept.pop_front();
    ++table.oldest;
  }
  table.kept.push_back(std::move(made));
  return g_last = table.oldest + static_cast<uint32_t>(table.kept.size()) - 1;
}

std::shared_ptr<const ShareKeys> kept_share_keys(uint32_t number) {
  if (number == 0) return nullptr;
  KeyTable& table = PerProcess<KeyTable>::get();
  MutexLock lock(table.mutex);
  const uint32_t place = number - table.oldest;  // wraps around for a number that is too old
  return place < table.kept.size() ? table.kept[place] : nullptr;
}

}  // namespace tuft::telemetry::internal
