// TLS of both ends of a join: versions 1.2 and 1.3 with OpenSSL's default ciphers, no renegotiation.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>  // Boost 1.83's asio uses std::exchange without it

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "base/result.h"

namespace tuft::join {

using TlsStream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;
using TlsContext = boost::asio::ssl::context;

// Files in PEM form.
struct TlsFiles {
  std::filesystem::path certificate;  // with its chain; empty: this end presents none
  std::filesystem::path private_key;
  std::filesystem::path authority;  // certificates that may sign the peer's; empty: see below
};

// Without an authority, a server asks no worker for a certificate. Reads the files. Errors: kInvalidArgument "tls",
// which names the file.
Result<std::shared_ptr<TlsContext>> server_context(const TlsFiles& files);
// Without an authority, the machine's own decide.
Result<std::shared_ptr<TlsContext>> client_context(const TlsFiles& files);

}  // namespace tuft::join
