// The attributes by which one finds the spans and logs of a session, run, sampler or request.
#pragma once

#include <string_view>
#include <vector>

#include "telemetry/attribute.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::worker {

// Returns the ids that are set and the base model; without a session also the user, to whom the records belong. The
// attributes borrow from both arguments.
std::vector<telemetry::Attribute> share_keys(const v1::CallIds& ids, std::string_view base_model);

}  // namespace tuft::worker
