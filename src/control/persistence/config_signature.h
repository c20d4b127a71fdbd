// The part of the configuration on which the stored state depends, kept beside the state. It has a version and is
// compared field by field, so that a server that knows more fields accepts what an older one wrote.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "config/config.h"

namespace tuft::control {

// Returns the record with every field that can be checked. It holds the names of users but no API keys.
std::string make_signature(const config::ServerConfig& config);

// Compares the fields of config.persistence.check_fields. kFailedPrecondition names the first difference and the ways
// out of it. SUPPORTED_MODELS: every model of the state must still be configured and be the same one; further models
// are no difference. `store`: its name, for messages.
Status check_signature(std::string_view stored, const config::ServerConfig& config, const std::string& store);

}  // namespace tuft::control
