// The memory that sparse loss inputs take in the worker while their datum runs, which the message does not show: a
// shape of a few bytes can ask for any number of cells.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "tinker/public.pb.h"

namespace tuft::control {

// The most targets of one token (K). The worker has the same limit.
inline constexpr int64_t kTargetsOfTokenMax = 1024;

// Returns the bytes of the sparse loss inputs as dense tensors. kInvalidArgument names the datum and the limit of a
// shape that no model can take, kPayloadTooLarge the limit that all of them exceed together. Reads shapes only.
Result<int64_t> dense_bytes(const tinker_public::ForwardBackwardRequest& request);

}  // namespace tuft::control
