#include "control/age/encryption.h"

#include <memory>
#include <optional>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/base64.h"
#include "base/check.h"
#include "control/age/bech32.h"

namespace tuft::control::age {
namespace {

constexpr std::string_view kVersionLine = "age-encryption.org/v1\n";
constexpr std::string_view kX25519Info = "age-encryption.org/v1/X25519";
constexpr size_t kTagBytes = 16;
constexpr size_t kNonceBytes = 12;

using Nonce = std::array<unsigned char, kNonceBytes>;

template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* pointer) const { kFree(pointer); }
};
using PKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using PKeyContext = std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX, EVP_PKEY_CTX_free>>;
using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, Freed<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free>>;

template <typename Bytes>
std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Error crypto_failed(const char* what) {
  return internal_error(std::string("libcrypto failed at ") + what, "crypto_failed");
}

std::string unpadded_base64(std::string_view bytes) {
  std::string text = to_base64(bytes);
  while (!text.empty() && text.back() == '=') text.pop_back();
  return text;
}

Key hmac(std::string_view key, std::string_view text) {
  Key mac{};
  unsigned int length = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text), text.size(), mac.data(), &length);
  TUFT_CHECK(made != nullptr && length == mac.size(), "HMAC-SHA256 failed");
  return mac;
}

// HKDF-SHA256 of RFC 5869 for one block of output. An empty salt is the same as one of zeros.
Key hkdf(std::string_view secret, std::string_view salt, std::string_view info) {
  Key extracted = hmac(salt, secret);
  const Key key = hmac(text_of(extracted), std::string(info) + '\x01');
  OPENSSL_cleanse(extracted.data(), extracted.size());
  return key;
}

// Returns the public key of a secret one.
Result<Key> public_key(const Key& secret) {
  const PKey own(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, secret.data(), secret.size()));
  Key key{};
  size_t length = key.size();
  if (own == nullptr || EVP_PKEY_get_raw_public_key(own.get(), key.data(), &length) != 1) {
    return crypto_failed("a key of X25519");
  }
  return key;
}

// Returns nothing if the result would be zero, which is so for public keys of small order.
std::optional<Key> shared_secret(const Key& secret, const Key& other) {
  const PKey own(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, secret.data(), secret.size()));
  const PKey peer(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, other.data(), other.size()));
  if (own == nullptr || peer == nullptr) return std::nullopt;
  const PKeyContext context(EVP_PKEY_CTX_new(own.get(), nullptr));
  Key shared{};
  size_t length = shared.size();
  const bool derived = context != nullptr && EVP_PKEY_derive_init(context.get()) == 1 &&
                       EVP_PKEY_derive_set_peer(context.get(), peer.get()) == 1 &&
                       EVP_PKEY_derive(context.get(), shared.data(), &length) == 1 && length == shared.size();
  if (!derived || shared == Key{}) return std::nullopt;
  return shared;
}

// ChaCha20-Poly1305 without associated data: the ciphertext, then the tag.
Result<std::string> seal_bytes(const Key& key, const Nonce& nonce, std::string_view plain) {
  const CipherContext context(EVP_CIPHER_CTX_new());
  std::string sealed(plain.size() + kTagBytes, '\0');
  auto* out = reinterpret_cast<unsigned char*>(sealed.data());
  int written = 0;
  int rest = 0;
  const bool done =
      context != nullptr &&
      EVP_EncryptInit_ex(context.get(), EVP_chacha20_poly1305(), nullptr, key.data(), nonce.data()) == 1 &&
      EVP_EncryptUpdate(context.get(), out, &written, bytes_of(plain), static_cast<int>(plain.size())) == 1 &&
      EVP_EncryptFinal_ex(context.get(), out + written, &rest) == 1 &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, out + plain.size()) == 1;
  if (!done || static_cast<size_t>(written + rest) != plain.size()) return crypto_failed("ChaCha20-Poly1305");
  return sealed;
}

// Returns the lines of the header with which one recipient finds the file key.
Result<std::string> stanza(const Recipient& recipient, const Key& ephemeral, std::string_view file_key) {
  TUFT_ASSIGN(const Key share, public_key(ephemeral));
  auto shared = shared_secret(ephemeral, recipient.key);
  if (!shared) return crypto_failed("X25519");
  const std::string salt = std::string(text_of(share)) + std::string(text_of(recipient.key));
  Key wrapping = hkdf(text_of(*shared), salt, kX25519Info);
  OPENSSL_cleanse(shared->data(), shared->size());
  auto body = seal_bytes(wrapping, Nonce{}, file_key);
  OPENSSL_cleanse(wrapping.data(), wrapping.size());
  if (!body.ok()) return body;
  return "-> X25519 " + unpadded_base64(text_of(share)) + "\n" + unpadded_base64(*body) + "\n";
}

Error refused_recipient(const char* why) {
  return invalid_argument(why, "invalid_age_recipient");
}

}  // namespace

Result<Recipient> parse_recipient(std::string_view text) {
  if (text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-")) {
    return refused_recipient("SSH public keys are not supported; use an age1... recipient (made with age-keygen)");
  }
  const auto decoded = decode_bech32(text);
  if (!decoded) {
    return refused_recipient("not an age recipient: its characters or its checksum are wrong; it looks like age1...");
  }
  if (decoded->prefix.starts_with("age-secret-key-")) {
    return refused_recipient("an identity, which must stay secret; send the recipient that belongs to it (age1...)");
  }
  if (decoded->prefix != "age") {
    return refused_recipient("recipients of other kinds than X25519 (age1...) are not supported");
  }
  Recipient recipient;
  if (decoded->data.size() != recipient.key.size()) {
    return refused_recipient("not an X25519 recipient: its key does not have 32 bytes");
  }
  std::copy(decoded->data.begin(), decoded->data.end(), recipient.key.begin());
  constexpr Key kAny = {1};
  if (!shared_secret(kAny, recipient.key)) {
    return refused_recipient("a key with which everybody could decrypt; make a new one with age-keygen");
  }
  return recipient;
}

Result<std::vector<Recipient>> parse_recipients(const std::vector<std::string>& texts) {
  if (texts.empty() || texts.size() > kRecipientsMax) {
    return invalid_argument("age_encryption_recipients must have 1 to " + std::to_string(kRecipientsMax) + " elements",
                            "invalid_age_recipient");
  }
  std::vector<Recipient> recipients;
  for (const std::string& text : texts) {
    auto recipient = parse_recipient(text);
    if (!recipient.ok()) {
      return Error{recipient.error().code,
                   "age_encryption_recipients[" + std::to_string(recipients.size()) + "]: " + recipient.error().message,
                   recipient.error().reason};
    }
    recipients.push_back(*recipient);
  }
  return recipients;
}

Secrets Secrets::draw(size_t recipients) {
  Secrets secrets;
  secrets.ephemeral.resize(recipients);
  const auto fill = [](auto& bytes) {
    TUFT_CHECK(RAND_priv_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, "no random numbers for a key");
  };
  fill(secrets.file_key);
  fill(secrets.nonce);
  for (Key& key : secrets.ephemeral) fill(key);
  return secrets;
}

Secrets::~Secrets() {
  OPENSSL_cleanse(file_key.data(), file_key.size());
  for (Key& key : ephemeral) OPENSSL_cleanse(key.data(), key.size());
}

Result<Encryption> Encryption::begin(const std::vector<Recipient>& recipients, const Secrets& secrets) {
  TUFT_CHECK(recipients.size() == secrets.ephemeral.size(), "each recipient needs a key");
  Encryption encryption;
  std::string& header = encryption.header_;
  header = kVersionLine;
  for (size_t i = 0; i < recipients.size(); ++i) {
    TUFT_ASSIGN(const std::string lines, stanza(recipients[i], secrets.ephemeral[i], text_of(secrets.file_key)));
    header += lines;
  }
  header += "---";
  Key mac_key = hkdf(text_of(secrets.file_key), "", "header");
  header += " " + unpadded_base64(text_of(hmac(text_of(mac_key), header))) + "\n";
  OPENSSL_cleanse(mac_key.data(), mac_key.size());
  header += text_of(secrets.nonce);
  encryption.payload_key_ = hkdf(text_of(secrets.file_key), text_of(secrets.nonce), "payload");
  return encryption;
}

Encryption::~Encryption() {
  OPENSSL_cleanse(payload_key_.data(), payload_key_.size());
}

Result<std::string> Encryption::seal(std::string_view chunk, bool is_last) {
  TUFT_CHECK(chunk.size() <= kChunkBytes && (is_last || chunk.size() == kChunkBytes), "only the last chunk is shorter");
  Nonce nonce{};
  // The counter has eleven bytes, of which a 64-bit number fills eight.
  for (size_t i = 0; i < 8; ++i) nonce.at(10 - i) = static_cast<unsigned char>(chunk_ >> 8 * i & 0xffU);
  nonce.back() = is_last ? 1 : 0;
  ++chunk_;
  return seal_bytes(payload_key_, nonce, chunk);
}

}  // namespace tuft::control::age
