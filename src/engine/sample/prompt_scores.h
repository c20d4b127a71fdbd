// Prompt scores: what a request asks about the positions of its prompt, and what the rows of logits answer. The logits
// of a position come from the token before it, so the first position has none. Internal to the sampler; confined to the
// engine thread.
#pragma once

#include <cstddef>

#include "engine/sample/request_state.h"

namespace tuft::engine {

// Checks the fields that prompt_scores handles. Returns kInvalidArgument with the field, its rule and the value.
Status check_prompt_scores(const SampleRequest& request, int vocab_size);

// Finds the first position to be scored, and makes room for all answers. To be called once, before the request waits.
void begin_prompt_scores(Request& request);

// Asks the row of a position for all that the request wants of it. The task refers to the request.
void ask_for_scores(Request& request, size_t position, LogitsTask& task);
// Keeps the answer for the first position that is not known yet.
void keep_scores(Request& request, LogitsTask& task);

}  // namespace tuft::engine
