// TLS of both ends of a join.
#pragma once

#include <memory>
#include <utility>  // Boost 1.83's asio uses std::exchange without it

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "base/result.h"
#include "tls/context.h"

namespace tuft::join {

using TlsStream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;
using TlsContext = tls::Context;

// The fields without a path are not given.
struct TlsFiles {
  tls::PemFile certificate;  // of this end, with its chain, and ...
  tls::PemFile private_key;  // ... its key
  tls::PemFile authority;    // certificates that may sign the peer's; without it: see below
};

// Without an authority, a server asks no worker for a certificate. Reads the files. Errors: kInvalidArgument "tls",
// which names the file.
Result<std::shared_ptr<TlsContext>> server_context(const TlsFiles& files);
// Without an authority, the machine's own decide.
Result<std::shared_ptr<TlsContext>> client_context(const TlsFiles& files);

}  // namespace tuft::join
