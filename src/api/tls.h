// The server's side of TLS: 1.2 and 1.3 with OpenSSL's default ciphers, HTTP/1.1 in ALPN, no renegotiation.
#pragma once

#include <memory>

#include "api/transport.h"
#include "base/result.h"
#include "config/config.h"

namespace tuft::api {

// kInvalidArgument, naming the key and the cure, where a file cannot be read, is not PEM, or the key is not that of the
// certificate. Both paths are set.
Result<std::shared_ptr<TlsContext>> make_tls_context(const config::TlsConfig& config);

}  // namespace tuft::api
