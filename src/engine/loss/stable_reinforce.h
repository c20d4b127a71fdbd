// Names of the loss stable_reinforce. Its inputs `logprobs` and `sampled_mask` come from the server: the
// log-probabilities from records of the control plane, the mask from the provenance spans of the datum.
#pragma once

#include <string_view>

namespace tuft::engine {

inline constexpr std::string_view kStableReinforce = "stable_reinforce";
// Not 0 for each target token that was sampled.
inline constexpr std::string_view kSampledMask = "sampled_mask";

}  // namespace tuft::engine
