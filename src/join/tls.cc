#include "join/tls.h"

#include <boost/asio/ssl/verify_mode.hpp>

namespace tuft::join {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

Status use_files(TlsContext& context, const TlsFiles& files) {
  if (!files.certificate.path.empty()) TUFT_TRY(tls::use_certificate(context, files.certificate, files.private_key));
  if (!files.authority.path.empty()) TUFT_TRY(tls::trust(context, files.authority));
  return {};
}

}  // namespace

Result<std::shared_ptr<TlsContext>> server_context(const TlsFiles& files) {
  std::shared_ptr<TlsContext> context = tls::make_context(TlsContext::tls_server);
  TUFT_TRY(use_files(*context, files));
  error_code ignored;
  const auto asks = ssl::verify_peer | ssl::verify_fail_if_no_peer_cert;
  context->set_verify_mode(files.authority.path.empty() ? ssl::verify_none : asks, ignored);
  return context;
}

Result<std::shared_ptr<TlsContext>> client_context(const TlsFiles& files) {
  std::shared_ptr<TlsContext> context = tls::make_context(TlsContext::tls_client);
  TUFT_TRY(use_files(*context, files));
  error_code code;
  if (files.authority.path.empty()) context->set_default_verify_paths(code);
  context->set_verify_mode(ssl::verify_peer, code);
  return context;
}

}  // namespace tuft::join
