#include "control/accounts/api_keys.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include <openssl/rand.h>
#include <openssl/sha.h>

#include "base/check.h"

namespace tuft::control {

// Reads every byte of both, so that the time does not tell where they differ.
bool equal_in_constant_time(std::string_view key, std::string_view presented) {
  size_t difference = key.size() ^ presented.size();
  const size_t length = std::max(key.size(), presented.size());
  for (size_t i = 0; i < length; ++i) {
    const auto a = i < key.size() ? static_cast<unsigned char>(key[i]) : 0U;
    const auto b = i < presented.size() ? static_cast<unsigned char>(presented[i]) : 0U;
    difference |= a ^ b;
  }
  return difference == 0;
}

namespace {

constexpr size_t kKeyBytesMax = 4096;
constexpr size_t kSaltBytes = 16;
constexpr size_t kRandomKeyBytes = 32;
constexpr std::string_view kPrefix = "sha256:";

std::string random_bytes(size_t size) {
  std::string bytes(size, '\0');
  TUFT_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(size)) == 1,
             "the system gives no random bytes");
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

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

// The salt and the hash of "sha256:<salt>:<hash>".
std::optional<std::pair<std::string, std::string>> parse_hash(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  auto salt = from_hex(text.substr(0, colon));
  auto hash = from_hex(text.substr(colon + 1));
  if (!salt || !hash || hash->size() != SHA256_DIGEST_LENGTH) return std::nullopt;
  return std::pair(std::move(*salt), std::move(*hash));
}

std::string_view view(const std::array<unsigned char, SHA256_DIGEST_LENGTH>& hash) {
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

}  // namespace

size_t ApiKeys::FirstBytes::operator()(const Hash& hash) const {
  size_t first = 0;
  std::memcpy(&first, hash.data(), sizeof(first));
  return first;
}

ApiKeys::Hash ApiKeys::hash_of(std::string_view salt, std::string_view key) {
  std::string text(salt);
  text.append(key);
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
  return hash;
}

const UserId* ApiKeys::find(const UserByHash& users, const Hash& hash) {
  const auto [begin, end] = users.equal_range(hash);
  return begin == end ? nullptr : &begin->second;
}

void ApiKeys::replace(const std::map<std::string, std::string>& user_by_key) {
  auto fresh = std::make_shared<Snapshot>();
  fresh->salt = random_bytes(kSaltBytes);
  std::map<std::string, UserByHash> by_salt;
  {
    MutexLock lock(fresh->mutex);
    for (const auto& [key, user] : user_by_key) {
      if (key.empty() || user.empty()) continue;
      if (const auto stored = parse_hash(key)) {
        Hash hash;
        std::copy(stored->second.begin(), stored->second.end(), hash.begin());
        by_salt[stored->first].emplace(hash, UserId(user));
      } else {
        fresh->known.emplace(hash_of(fresh->salt, key), UserId(user));
      }
    }
  }
  for (auto& [salt, users] : by_salt) fresh->stored.push_back({salt, std::move(users)});
  std::shared_ptr<const Snapshot> next = std::move(fresh);
  MutexLock lock(mutex_);
  snapshot_.swap(next);
}

Result<UserId> ApiKeys::authenticate(std::string_view presented) const {
  if (presented.empty()) {
    return Error{ErrorCode::kUnauthenticated, "missing API key: send it in the header X-API-Key", "missing_api_key"};
  }
  const Error unknown{ErrorCode::kPermissionDenied, "invalid API key: it is not in authorized_users of the server",
                      "invalid_api_key"};
  if (presented.size() > kKeyBytesMax) return unknown;
  std::shared_ptr<const Snapshot> snapshot;
  {
    MutexLock lock(mutex_);
    snapshot = snapshot_;
  }
  const Hash own = hash_of(snapshot->salt, presented);
  {
    MutexLock lock(snapshot->mutex);
    if (const UserId* user = find(snapshot->known, own)) return *user;
  }
  for (const Salted& salted : snapshot->stored) {
    const UserId* const user = find(salted.users, hash_of(salted.salt, presented));
    if (user == nullptr) continue;
    MutexLock lock(snapshot->mutex);
    snapshot->known.emplace(own, *user);
    return *user;
  }
  return unknown;
}

std::string hash_key(std::string_view key) {
  const std::string salt = random_bytes(kSaltBytes);
  std::string text = salt;
  text.append(key);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
  return std::string(kPrefix) + to_hex(salt) + ":" + to_hex(view(hash));
}

std::string new_key() {
  return "tml-" + to_hex(random_bytes(kRandomKeyBytes));
}

}  // namespace tuft::control
