// What a sample request may hold.
#pragma once

#include "base/result.h"
#include "engine/engine.h"
#include "engine/sample/sampler.h"

namespace tuft::engine {

inline constexpr int kSamplesMax = 4096;
inline constexpr int kTopkLogprobsMax = 1024;
inline constexpr size_t kStopStringsMax = 64;
inline constexpr size_t kStopStringBytesMax = 1024;
inline constexpr size_t kStopTokensMax = 1024;

// kInvalidArgument names the field, what it may be and what it is; kNotFound for an adapter that is not loaded.
// `has_text`: stop strings can be looked for.
Status check_request(const SampleRequest& request, const Engine& engine, int tokens_max, bool has_text);

}  // namespace tuft::engine
