// Where the time of a training run went, and what its user could do to go faster.
#pragma once

#include <string>
#include <vector>

#include "control/observe/views.h"
#include "telemetry_store/query.h"

namespace tuft::control {

// Adds up steps.
RunTime time_of(const std::vector<telemetry_store::RunStep>& steps);

// Returns sentences, the most rewarding first; none if there are too few steps to say anything. `pass_tokens`: the
// tokens for which a pass of the base model has room.
std::vector<std::string> advice_for(const RunTime& time, int64_t pass_tokens);

}  // namespace tuft::control
