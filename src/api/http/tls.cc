#include "api/http/tls.h"

#include <algorithm>
#include <string_view>

#include <openssl/ssl.h>

#include "tls/context.h"

namespace tuft::api {
namespace {

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
  std::shared_ptr<TlsContext> context = tls::make_context(TlsContext::tls_server);
  SSL_CTX_set_alpn_select_cb(context->native_handle(), choose_protocol, nullptr);
  TUFT_TRY(tls::use_certificate(*context, {.key = "tls.certificate", .path = config.certificate},
                                {.key = "tls.private_key", .path = config.private_key}));
  return context;
}

}  // namespace tuft::api
