// Checks the fields of a sample request.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/sample/sampler.h"

namespace tuft::engine {

inline constexpr int kSamplesMax = 4096;
inline constexpr int kTopkLogprobsMax = 1024;
inline constexpr size_t kStopStringsMax = 64;
inline constexpr size_t kStopStringBytesMax = 1024;
inline constexpr size_t kStopTokensMax = 1024;

// Returns the refusal of a field that has another value than the allowed ones.
Error out_of_range(const char* field, const std::string& allowed, const std::string& got);

// Returns kInvalidArgument with the field, the allowed values and the given value, or kNotFound for an adapter that is
// not loaded. `has_text`: stop strings are supported.
Status check_request(const SampleRequest& request, const ModelSpec& model, const AdapterStore& adapters, int tokens_max,
                     bool has_text);

}  // namespace tuft::engine
