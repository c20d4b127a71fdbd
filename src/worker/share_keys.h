// The keys by which spans and logs of one session, run, sampler or request are found.
#pragma once

#include <string_view>
#include <vector>

#include "telemetry/attribute.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::worker {

// What `ids` holds and the base model. Borrows from both.
std::vector<telemetry::Attribute> share_keys(const v1::CallIds& ids, std::string_view base_model);

}  // namespace tuft::worker
