// Checks where the tokens of a datum come from, as clients since SDK 0.26 say it. The check finds datums whose parts do
// not belong together; one loss, stable_reinforce, also reads which tokens were sampled.
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

// Adds to `datum` the input of stable_reinforce that marks the targets which were sampled. Requires
// check_provenance(). Returns kInvalidArgument for a datum without spans, and for one that brings this input itself.
Status add_sampled_mask(const tinker_public::Datum& source, size_t index, engine::Datum& datum);

}  // namespace tuft::worker
