// How much memory the KV cache and the adapters may take.
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

struct AdapterNeed {
  int64_t asked = 0;  // as above
  int64_t free = 0;
  double share = 1.0;
  int64_t kv_cache = 0;  // that is spoken for
  int64_t training = 0;  // what the largest adapter takes to be trained
  int64_t sampler = 0;   // and what its published version takes
};

// The limit in bytes; 0 where none can be given. kInvalidArgument, with the sum written out, for what does not fit.
Result<int64_t> plan_adapters(const AdapterNeed& need);

}  // namespace tuft::app
