// Addresses on this server for answers that name one, as the client reaches it: the host that it named, or what the
// proxy in front was asked for.
#pragma once

#include <string>
#include <string_view>

#include "api/exchange.h"

namespace tuft::api {

// "http://127.0.0.1:10610/api/v1/..."; `path` begins with '/'. A host that is none becomes "localhost".
std::string own_url(const Exchange& exchange, std::string_view path);

}  // namespace tuft::api
