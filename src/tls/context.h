// What all TLS connections of ours have in common: versions 1.2 and 1.3 with OpenSSL's default ciphers, no
// renegotiation, no compression.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>  // Boost 1.83's asio uses std::exchange without it

#include <boost/asio/ssl/context.hpp>

#include "base/result.h"

namespace tuft::tls {

using Context = boost::asio::ssl::context;

// A file in PEM form, and the configuration key or flag that named it, which messages repeat.
struct PemFile {
  std::string_view key;
  std::filesystem::path path = {};
};

// `method`: tls_server or tls_client.
std::shared_ptr<Context> make_context(Context::method method);

// These read their files, and return kInvalidArgument "tls", naming the key and the cure, if one is not usable.

// `chain` begins with the own certificate; `private_key` belongs to it.
Status use_certificate(Context& context, const PemFile& chain, const PemFile& private_key);
// Certificates of the file may sign those of peers.
Status trust(Context& context, const PemFile& authority);

}  // namespace tuft::tls
