// Checks where the tokens of a datum come from, as clients since SDK 0.26 say it. No loss reads it: the check only
// finds datums whose parts do not belong together.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "engine/trainer.h"
#include "tinker/public.pb.h"

namespace tuft::worker {

// Requires that `datum` was read from `source`. Returns kInvalidArgument that names the datum and the list if only one
// list of spans is given, if a span is malformed, or if the spans do not cover model_input, or target_tokens,
// exactly. The sequences need not exist.
Status check_provenance(const tinker_public::Datum& source, size_t index, const engine::Datum& datum);

}  // namespace tuft::worker
