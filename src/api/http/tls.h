// TLS of the server: versions 1.2 and 1.3 with OpenSSL's default ciphers, HTTP/1.1 in ALPN, no renegotiation.
#pragma once

#include <memory>

#include "api/http/transport.h"
#include "base/result.h"
#include "config/config.h"

namespace tuft::api {

// Reads the files of `config`; both paths must be set. Returns kInvalidArgument, naming the key and the cure, if a file
// cannot be read or is not PEM, or if the key does not belong to the certificate.
Result<std::shared_ptr<TlsContext>> make_tls_context(const config::TlsConfig& config);

}  // namespace tuft::api
