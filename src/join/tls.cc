#include "join/tls.h"

#include <string_view>

#include <openssl/ssl.h>

#include "base/file.h"

namespace tuft::join {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr size_t kPemBytesMax = 1 << 20;

Error wrong(const std::filesystem::path& path, std::string_view what) {
  return invalid_argument(path.string() + " " + std::string(what), "tls");
}

Status use_own_certificate(TlsContext& context, const TlsFiles& files) {
  TUFT_ASSIGN(const std::string chain, read_file(files.certificate, kPemBytesMax));
  TUFT_ASSIGN(const std::string key, read_file(files.private_key, kPemBytesMax));
  error_code code;
  context.use_certificate_chain(boost::asio::buffer(chain), code);
  if (code) return wrong(files.certificate, "is not a certificate in PEM form (" + code.message() + ")");
  context.use_private_key(boost::asio::buffer(key), ssl::context::pem, code);
  if (code || SSL_CTX_check_private_key(context.native_handle()) != 1) {
    return wrong(files.private_key,
                 "is not the private key of " + files.certificate.string() + ", in PEM form and without a pass phrase");
  }
  return {};
}

Result<std::shared_ptr<TlsContext>> make_context(const TlsFiles& files, ssl::context::method method) {
  auto context = std::make_shared<TlsContext>(method);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Without this callback OpenSSL would ask for a pass phrase at the terminal.
  SSL_CTX_set_default_passwd_cb(native, [](char*, int, int, void*) { return 0; });
  if (!files.certificate.empty()) TUFT_TRY(use_own_certificate(*context, files));
  if (files.authority.empty()) return context;
  TUFT_ASSIGN(const std::string authority, read_file(files.authority, kPemBytesMax));
  error_code code;
  context->add_certificate_authority(boost::asio::buffer(authority), code);
  if (code) return wrong(files.authority, "holds no certificate in PEM form (" + code.message() + ")");
  return context;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> server_context(const TlsFiles& files) {
  TUFT_ASSIGN(std::shared_ptr<TlsContext> context, make_context(files, ssl::context::tls_server));
  error_code ignored;
  const auto asks = ssl::verify_peer | ssl::verify_fail_if_no_peer_cert;
  context->set_verify_mode(files.authority.empty() ? ssl::verify_none : asks, ignored);
  return context;
}

Result<std::shared_ptr<TlsContext>> client_context(const TlsFiles& files) {
  TUFT_ASSIGN(std::shared_ptr<TlsContext> context, make_context(files, ssl::context::tls_client));
  error_code code;
  if (files.authority.empty()) context->set_default_verify_paths(code);
  context->set_verify_mode(ssl::verify_peer, code);
  return context;
}

}  // namespace tuft::join
