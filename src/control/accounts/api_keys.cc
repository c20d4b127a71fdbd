#include "control/accounts/api_keys.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "config/key_hash.h"

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
constexpr size_t kRandomKeyBytes = 32;

}  // namespace

size_t ApiKeys::FirstBytes::operator()(const Hash& hash) const {
  size_t first = 0;
  std::memcpy(&first, hash.data(), sizeof(first));
  return first;
}

const UserId* ApiKeys::find(const UserByHash& users, const Hash& hash) {
  const auto [begin, end] = users.equal_range(hash);
  return begin == end ? nullptr : &begin->second;
}

void ApiKeys::replace(const std::map<std::string, std::string>& user_by_key) {
  auto fresh = std::make_shared<Snapshot>();
  fresh->salt = config::random_bytes(config::kKeySaltBytes);
  std::map<std::string, UserByHash> by_salt;
  {
    MutexLock lock(fresh->mutex);
    for (const auto& [key, user] : user_by_key) {
      if (key.empty() || user.empty()) continue;
      fresh->users.emplace_back(user);
      if (const auto stored = config::parse_key_hash(key)) {
        by_salt[stored->salt].emplace(stored->hash, UserId(user));
      } else {
        fresh->known.emplace(config::hash_of_key(fresh->salt, key), UserId(user));
      }
    }
  }
  std::sort(fresh->users.begin(), fresh->users.end());
  fresh->users.erase(std::unique(fresh->users.begin(), fresh->users.end()), fresh->users.end());
  for (auto& [salt, users] : by_salt) fresh->stored.push_back({salt, std::move(users)});
  std::shared_ptr<const Snapshot> next = std::move(fresh);
  MutexLock lock(mutex_);
  snapshot_.swap(next);
}

std::vector<UserId> ApiKeys::users() const {
  MutexLock lock(mutex_);
  return snapshot_->users;
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
  const Hash own = config::hash_of_key(snapshot->salt, presented);
  {
    MutexLock lock(snapshot->mutex);
    if (const UserId* user = find(snapshot->known, own)) return *user;
  }
  for (const Salted& salted : snapshot->stored) {
    const UserId* const user = find(salted.users, config::hash_of_key(salted.salt, presented));
    if (user == nullptr) continue;
    MutexLock lock(snapshot->mutex);
    snapshot->known.emplace(own, *user);
    return *user;
  }
  return unknown;
}

std::string hash_key(std::string_view key) {
  return config::key_hash_text(config::random_bytes(config::kKeySaltBytes), key);
}

std::string new_key() {
  std::string key = "tml-";
  append_hex(key, config::random_bytes(kRandomKeyBytes));
  return key;
}

}  // namespace tuft::control
