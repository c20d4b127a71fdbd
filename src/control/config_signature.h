// What of the configuration the stored state depends on, kept beside it. Versioned and compared field by field, so that
// a server that knows more fields takes what an older one wrote.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "config/config.h"

namespace tuft::control {

// The record, with every field that can be checked. Users by name; no keys.
std::string make_signature(const config::ServerConfig& config);

// kFailedPrecondition naming the first difference among config.persistence.check_fields, and the ways out of it.
// SUPPORTED_MODELS: every model that the state knows must be there and be the same one; new ones are no difference.
// `store` is the store's name for messages.
Status check_signature(std::string_view stored, const config::ServerConfig& config, const std::string& store);

}  // namespace tuft::control
