#include "config/key_hash.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <openssl/evp.h>
#include <openssl/rand.h>

#include "base/check.h"
#include "base/text.h"

namespace tuft::config {
namespace {

constexpr std::string_view kPrefix = "sha256:";
constexpr size_t kSaltBytesMax = 64;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::optional<std::string> from_hex(std::string_view text) {
  if (text.empty() || text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit_of(text[i]), low = digit_of(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace

// OpenSSL clears its context, which holds the last block, when it frees it.
KeyHash hash_of_key(std::string_view salt, std::string_view key) {
  KeyHash hash;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const bool done = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1 &&
                    EVP_DigestUpdate(context.get(), salt.data(), salt.size()) == 1 &&
                    EVP_DigestUpdate(context.get(), key.data(), key.size()) == 1 &&
                    EVP_DigestFinal_ex(context.get(), hash.data(), nullptr) == 1;
  TUFT_CHECK(done, "the cryptographic library has SHA-256");
  return hash;
}

std::string key_hash_text(std::string_view salt, std::string_view key) {
  const KeyHash hash = hash_of_key(salt, key);
  std::string text(kPrefix);
  append_hex(text, salt);
  text += ':';
  append_hex(text, {reinterpret_cast<const char*>(hash.data()), hash.size()});
  return text;
}

std::optional<SaltedKeyHash> parse_key_hash(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  auto salt = from_hex(text.substr(0, colon));
  const auto hash = from_hex(text.substr(colon + 1));
  SaltedKeyHash parsed;
  if (!salt || salt->size() > kSaltBytesMax || !hash || hash->size() != parsed.hash.size()) return std::nullopt;
  parsed.salt = std::move(*salt);
  std::copy(hash->begin(), hash->end(), parsed.hash.begin());
  return parsed;
}

std::string random_bytes(size_t size) {
  std::string bytes(size, '\0');
  TUFT_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(size)) == 1,
             "the system gives no random bytes");
  return bytes;
}

std::string kept_form_of_key(std::string_view key) {
  if (parse_key_hash(key)) return std::string(key);
  static const std::string salt = random_bytes(kKeySaltBytes);
  return key_hash_text(salt, key);
}

}  // namespace tuft::config
