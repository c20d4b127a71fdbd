#include "api/http/tls.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>

#include "base/file.h"

namespace tuft::api {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr size_t kPemBytesMax = 1 << 20;

Error wrong(std::string_view key, const std::filesystem::path& path, const std::string& what) {
  return invalid_argument(std::string(key) + ": " + path.string() + " " + what, "tls");
}

Result<std::string> read_pem(std::string_view key, const std::filesystem::path& path) {
  Result<std::string> text = read_file(path, kPemBytesMax);
  if (!text.ok()) return invalid_argument(std::string(key) + ": " + text.error().message, "tls");
  return text;
}

// Selects HTTP/1.1, this server's only protocol. A client that does not offer it may connect nevertheless.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                    unsigned int in_size, void*) {
  constexpr std::string_view kHttp11("\x08http/1.1", 9);
  for (unsigned int i = 0; i < in_size; i += 1U + in[i]) {
    const std::string_view offered(reinterpret_cast<const char*>(in) + i, std::min(1U + in[i], in_size - i));
    if (offered != kHttp11) continue;
    *out = in + i + 1;
    *out_size = in[i];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> make_tls_context(const config::TlsConfig& config) {
  TUFT_ASSIGN(const std::string chain, read_pem("tls.certificate", config.certificate));
  TUFT_ASSIGN(const std::string key, read_pem("tls.private_key", config.private_key));
  auto context = std::make_shared<TlsContext>(ssl::context::tls_server);
  error_code code;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, code);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_alpn_select_cb(native, choose_protocol, nullptr);
  // Without this callback OpenSSL would ask for a pass phrase at the terminal.
  SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void*) { return 0; });
  context->use_certificate_chain(boost::asio::buffer(chain), code);
  if (code) {
    return wrong(
        "tls.certificate", config.certificate,
        "is not a certificate in PEM form (" + code.message() + "); the server's own certificate must come first");
  }
  context->use_private_key(boost::asio::buffer(key), ssl::context::pem, code);
  if (!code && SSL_CTX_check_private_key(native) == 1) return context;
  const bool is_other =
      code == error_code() || code.value() == static_cast<int>(ERR_PACK(ERR_LIB_X509, 0, X509_R_KEY_VALUES_MISMATCH));
  if (is_other) {
    return wrong("tls.private_key", config.private_key,
                 "is not the key of the certificate in tls.certificate; use a certificate and its own key");
  }
  return wrong("tls.private_key", config.private_key,
               "is not a private key in PEM form without a pass phrase (" + code.message() + ")");
}

}  // namespace tuft::api
