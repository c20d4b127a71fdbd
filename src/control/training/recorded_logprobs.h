// Joins the training requests of the loss stable_reinforce with what was recorded when their sequences were sampled
// (sample_records.h).
#pragma once

#include <string_view>

#include "base/result.h"
#include "control/sampling/sample_records.h"
#include "control/types/types.h"
#include "tinker/public.pb.h"

namespace tuft::control {

// The loss that reads records.
inline constexpr std::string_view kRecordedLoss = "stable_reinforce";

// Replaces the input `logprobs` of each datum by the recorded log-probabilities of its sampled tokens, and 0 for the
// others. Every record that the datums name begins its day again. The work and the memory are at most those of the
// datums' targets, spans and inputs.
//
// Returns kInvalidArgument for a datum without spans, with spans that do not lie within the recorded sequence or do not
// cover target_tokens, and with other sampled tokens than the recorded ones; kNotFound for a sequence that the session
// has no record of. The message names the datum, the list and the sequence.
Status put_recorded_logprobs(SampleRecords& records, const UserId& user, const SessionId& session,
                             tinker_public::ForwardBackwardRequest& request);

}  // namespace tuft::control
