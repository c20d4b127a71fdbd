// How much memory the KV cache may take.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace tuft::app {

struct KvCacheNeed {
  int64_t asked = 0;            // bytes, as configured; 0: what is reasonable
  int64_t free = 0;             // bytes of the machine that nobody uses, the weights being loaded; 0: not known
  double share = 1.0;           // of it, that is this worker's
  int64_t bytes_per_token = 0;  // of keys and values
  int64_t tokens_max = 0;       // of the longest sequence
};

// The limit in bytes; 0 where none can be given. kInvalidArgument, with the sum written out, for what does not fit.
Result<int64_t> plan_kv_cache(const KvCacheNeed& need);

}  // namespace tuft::app
