// Encryption in the format age v1 (https://c2sp.org/age) for X25519 recipients.
//
// The room age/ promises: who holds the identity of any recipient, and nobody else, can decrypt; each file has a key of
// its own, which is forgotten when the file is done; memory does not depend on the length of the file.
//
//   header: a random file key of 16 bytes, sealed for each recipient, and a MAC over that
//   payload: a random nonce of 16 bytes, then chunks of 64 KiB, each sealed on its own; the last one is marked
//
// The arithmetic is libcrypto's. ADR 0015 says why this is written here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::control::age {

using Key = std::array<unsigned char, 32>;

// A public key of X25519.
struct Recipient {
  Key key{};
};

inline constexpr size_t kRecipientsMax = 10;
inline constexpr size_t kChunkBytes = 64 << 10;
inline constexpr std::string_view kSuffix = ".age";

// Reads "age1...". Returns kInvalidArgument, which does not repeat the text: for SSH keys and the recipients of
// plugins, which are not supported; for a wrong checksum; for a key that cannot keep a secret.
Result<Recipient> parse_recipient(std::string_view text);
// Reads 1 to kRecipientsMax of them. The error names the index.
Result<std::vector<Recipient>> parse_recipients(const std::vector<std::string>& texts);

// The random numbers of one file.
struct Secrets {
  std::array<unsigned char, 16> file_key{};
  std::array<unsigned char, 16> nonce{};
  std::vector<Key> ephemeral;  // secret keys, one for each recipient

  static Secrets draw(size_t recipients);
  Secrets() = default;
  Secrets(Secrets&&) = default;
  Secrets& operator=(Secrets&&) = default;
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;
  ~Secrets();
};

// Encrypts one file. Not thread-safe.
class Encryption {
 public:
  // kInternal if libcrypto fails.
  static Result<Encryption> begin(const std::vector<Recipient>& recipients, const Secrets& secrets);
  Encryption(Encryption&&) = default;
  Encryption& operator=(Encryption&&) = default;
  Encryption(const Encryption&) = delete;
  Encryption& operator=(const Encryption&) = delete;
  ~Encryption();

  // Returns the bytes that precede the chunks.
  const std::string& header() const { return header_; }
  // Encrypts the next chunk. Requires: kChunkBytes bytes, fewer only in the last one, which is empty only if the file
  // is.
  Result<std::string> seal(std::string_view chunk, bool is_last);

 private:
  Encryption() = default;

  std::string header_;
  Key payload_key_{};
  uint64_t chunk_ = 0;
};

}  // namespace tuft::control::age
