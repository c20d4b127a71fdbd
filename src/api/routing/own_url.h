// URLs of this server in answers.
#pragma once

#include <string>
#include <string_view>

#include "api/exchange.h"

namespace tuft::api {

// Returns the URL of `path` (beginning with '/') below the configured public_url. Without one it has the scheme and
// host by which the client, or the proxy in front of the server, was addressed. Host and port are all that is taken
// from a header; another text becomes "localhost".
std::string own_url(const Exchange& exchange, std::string_view path);

}  // namespace tuft::api
