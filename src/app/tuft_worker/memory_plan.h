// Computes the memory limits of the KV cache and of the adapters.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace tuft::app {

struct KvCacheNeed {
  int64_t asked = 0;            // bytes, as configured; 0: choose a limit
  int64_t free = 0;             // free bytes of the machine once the weights are loaded; 0: unknown
  double share = 1.0;           // fraction of `free` that is this worker's
  int64_t bytes_per_token = 0;  // of keys and values
  int64_t tokens_max = 0;       // length of the longest sequence
};

// Returns the limit in bytes; 0: unknown. Returns kInvalidArgument, with the calculation, if it does not fit.
Result<int64_t> plan_kv_cache(const KvCacheNeed& need);

struct AdapterNeed {
  int64_t asked = 0;  // as above
  int64_t free = 0;
  double share = 1.0;
  int64_t kv_cache = 0;  // bytes of the KV cache that `free` still includes
  int64_t training = 0;  // bytes of the largest adapter in training
  int64_t sampler = 0;   // bytes of its published version
};

// See plan_kv_cache().
Result<int64_t> plan_adapters(const AdapterNeed& need);

}  // namespace tuft::app
