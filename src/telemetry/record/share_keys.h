// Keeps the share keys of pieces of work for the spans and log records below them. Internal to telemetry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "telemetry/attribute.h"

namespace tuft::telemetry::internal {

inline constexpr size_t kShareKeysMax = 6;
inline constexpr size_t kShareKeyBytesMax = 256;
// The number of sets of keys that are kept after their release, beside those that spans and SharedKeys hold.
inline constexpr size_t kShareKeySetsMax = 16384;

struct ShareKeys {
  std::array<std::string_view, kShareKeysMax> keys = {};  // names, which live as long as the process
  std::array<uint16_t, kShareKeysMax> ends = {};          // of the values in `texts`
  size_t count = 0;
  std::string texts;

  std::string_view value(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(texts).substr(begin, ends[i] - begin);
  }
};

// Keeps the texts among `keys`, and those of the set `inherited` for other keys, until release_share_keys(). Returns
// the number for SpanContext::keys; `inherited`, and keeps nothing, if there are no texts. Thread-safe.
uint32_t keep_share_keys(Attributes keys, uint32_t inherited);
// Makes the set the newest of those that can be replaced by newer ones. Call it once for each. Ignores 0, and numbers
// that a parent gave before a fork(). Does not allocate. Thread-safe.
void release_share_keys(uint32_t number);
// Returns the keys; null for 0, and for keys that have been replaced. Thread-safe.
std::shared_ptr<const ShareKeys> kept_share_keys(uint32_t number);

}  // namespace tuft::telemetry::internal
