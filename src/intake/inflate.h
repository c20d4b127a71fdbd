// Decompression of one message.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace tuft::intake {

// Returns whether the bytes begin as gzip or zlib does, which no request of OTLP does.
bool is_deflated(const std::string& bytes);

// Returns what gzip or zlib compressed. Returns kPayloadTooLarge as soon as that is more than `bytes_max`, and has
// produced no more until then; kInvalidArgument for damaged or truncated bytes.
Result<std::string> inflated(std::string bytes, size_t bytes_max);

}  // namespace tuft::intake
