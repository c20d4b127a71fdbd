#include "control/checkpoints/archive_ticket.h"

#include <algorithm>
#include <charconv>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/base64.h"
#include "base/check.h"

namespace tuft::control {
namespace {

constexpr size_t kSignatureBytes = 32;
constexpr size_t kTicketBytesMax = 4096;

// base64url without padding, RFC 4648 section 5.
std::string to_url(std::string_view bytes) {
  std::string text = to_base64(bytes);
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

std::optional<std::string> from_url(std::string_view url) {
  std::string text(url);
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  while (text.size() % 4 != 0) text += '=';
  return from_base64(text);
}

Error refused() {
  return {ErrorCode::kPermissionDenied,
          "this address is not valid any more: it has expired, the server was restarted, or it was changed; "
          "ask for a new one",
          "bad_archive_ticket"};
}

}  // namespace

ArchiveTickets::ArchiveTickets() : key_() {
  TUFT_CHECK(RAND_bytes(key_.data(), static_cast<int>(key_.size())) == 1, "no random numbers for a key");
}

std::string ArchiveTickets::sign(std::string_view text) const {
  std::string signature(kSignatureBytes, '\0');
  unsigned int length = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(signature.data()), &length);
  TUFT_CHECK(made != nullptr && length == kSignatureBytes, "HMAC-SHA256 failed");
  return signature;
}

std::string ArchiveTickets::issue(const ArchiveGrant& grant) const {
  const std::string text =
      std::to_string(grant.expires) + ' ' + grant.path.str() + ' ' + grant.file + ' ' + grant.user.str();
  return to_url(sign(text) + text);
}

Result<ArchiveGrant> ArchiveTickets::check(std::string_view ticket, Nanos wall) const {
  if (ticket.size() > kTicketBytesMax) return refused();
  const auto bytes = from_url(ticket);
  if (!bytes || bytes->size() <= kSignatureBytes) return refused();
  const std::string_view text = std::string_view(*bytes).substr(kSignatureBytes);
  if (CRYPTO_memcmp(sign(text).data(), bytes->data(), kSignatureBytes) != 0) return refused();
  ArchiveGrant grant;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), grant.expires);
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  const size_t file = rest.find(' ', 1);  // no path holds one
  const size_t user = file == rest.npos ? file : rest.find(' ', file + 1);
  if (code != std::errc() || user == rest.npos || grant.expires <= wall) return refused();
  TUFT_ASSIGN(grant.path, parse_checkpoint_path(rest.substr(1, file - 1)));
  grant.file = rest.substr(file + 1, user - file - 1);
  grant.user = UserId(rest.substr(user + 1));
  return grant;
}

}  // namespace tuft::control
