// API keys as hashes, so that no key stays in memory: "sha256:<salt>:<hash>", both hex, where hash = SHA-256(salt ||
// key). A fast hash is sufficient for random keys; see control/accounts/api_keys.h.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tuft::config {

using KeyHash = std::array<unsigned char, 32>;

// Leaves no copy of `key` behind.
KeyHash hash_of_key(std::string_view salt, std::string_view key);

// Returns "sha256:<salt>:<hash>".
std::string key_hash_text(std::string_view salt, std::string_view key);

struct SaltedKeyHash {
  std::string salt;
  KeyHash hash;
};
// Returns nothing if `text` is not such a hash in lower-case hex.
std::optional<SaltedKeyHash> parse_key_hash(std::string_view text);

// Returns random bytes, fit for a salt or a key.
std::string random_bytes(size_t size);
inline constexpr size_t kKeySaltBytes = 16;

// Returns `key` as it is kept: a hash as it is, and a plain key as a hash with a random salt of this process. The same
// key always gives the same text.
std::string kept_form_of_key(std::string_view key);

}  // namespace tuft::config
