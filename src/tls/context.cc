#include "tls/context.h"

#include <string>

#include <boost/asio/buffer.hpp>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>

#include "base/file.h"

namespace tuft::tls {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr size_t kPemBytesMax = 1 << 20;

Error wrong(const PemFile& file, const std::string& what) {
  return invalid_argument(std::string(file.key) + ": " + file.path.string() + " " + what, "tls");
}

Result<std::string> read_pem(const PemFile& file) {
  Result<std::string> text = read_file(file.path, kPemBytesMax);
  if (!text.ok()) return invalid_argument(std::string(file.key) + ": " + text.error().message, "tls");
  return text;
}

}  // namespace

std::shared_ptr<Context> make_context(Context::method method) {
  auto context = std::make_shared<Context>(method);
  SSL_CTX* const native = context->native_handle();
  error_code ignored;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, ignored);
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Without this callback OpenSSL would ask for a pass phrase at the terminal.
  SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void*) { return 0; });
  return context;
}

Status use_certificate(Context& context, const PemFile& chain, const PemFile& private_key) {
  TUFT_ASSIGN(const std::string certificates, read_pem(chain));
  TUFT_ASSIGN(const std::string key, read_pem(private_key));
  error_code code;
  context.use_certificate_chain(boost::asio::buffer(certificates), code);
  if (code) {
    return wrong(chain,
                 "is not a certificate in PEM form (" + code.message() + "); the own certificate must come first");
  }
  context.use_private_key(boost::asio::buffer(key), ssl::context::pem, code);
  if (!code && SSL_CTX_check_private_key(context.native_handle()) == 1) return {};
  const bool is_other =
      code == error_code() || code.value() == static_cast<int>(ERR_PACK(ERR_LIB_X509, 0, X509_R_KEY_VALUES_MISMATCH));
  if (is_other) {
    return wrong(private_key, "is not the key of the certificate in " + std::string(chain.key) +
                                  "; use a certificate and its own key");
  }
  return wrong(private_key, "is not a private key in PEM form without a pass phrase (" + code.message() + ")");
}

Status trust(Context& context, const PemFile& authority) {
  TUFT_ASSIGN(const std::string certificates, read_pem(authority));
  error_code code;
  context.add_certificate_authority(boost::asio::buffer(certificates), code);
  if (code) return wrong(authority, "holds no certificate in PEM form (" + code.message() + ")");
  return {};
}

}  // namespace tuft::tls
