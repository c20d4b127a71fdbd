#include "engine/back_end/kv_sequence.h"

#include <algorithm>

namespace tuft::engine {

int64_t kv_blocks_max(int64_t bytes_max, int64_t block_bytes) {
  return bytes_max == 0 ? 0 : std::max<int64_t>(1, bytes_max / block_bytes);
}

KvUsage kv_usage_of(const BlockPool& pool, int64_t block_bytes) {
  return {.used = pool.used() * block_bytes,
          .cached = pool.cached() * block_bytes,
          .limit = pool.limit() * block_bytes,
          .block = block_bytes,
          .positions = pool.positions(),
          .evicted = pool.evicted(),
          .empty = pool.empty() * block_bytes / pool.positions()};
}

}  // namespace tuft::engine
