// API keys and the users they belong to.
//
// The configuration's file holds a key in plain text or as a hash (config/key_hash.h). Only hashes are kept in memory:
// a plain key is hashed with a random salt of this process as soon as it is read. A fast hash is sufficient because
// keys are random (`tuft hash-key --new` draws 256 bits). It is not for words that people choose, so hash-key refuses
// short keys.
//
// A key is looked up by its hash, so the time of the lookup does not tell how much of a key was guessed: without the
// salt nobody can choose hashes, and who knows the salt knows the hash, too. The first use of a key with a salt of its
// own costs one hash for each such salt; afterwards its hash under the process's salt is remembered, and it costs one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "config/key_hash.h"
#include "control/types/types.h"

namespace tuft::control {

// Compares secrets. The time depends only on the lengths.
bool equal_in_constant_time(std::string_view key, std::string_view presented);

// Returns "sha256:<salt>:<hash>" with a new random salt.
std::string hash_key(std::string_view key);
// Returns "tml-" and 256 random bits in hex.
std::string new_key();

// Thread-safe. An empty key, and a key of a user with an empty name, is ignored.
class ApiKeys {
 public:
  explicit ApiKeys(const std::map<std::string, std::string>& user_by_key) { replace(user_by_key); }

  // Replaces all keys. Requests that were authenticated before are not affected.
  void replace(const std::map<std::string, std::string>& user_by_key) TUFT_EXCLUDES(mutex_);

  // Returns the users that have a key, sorted.
  std::vector<UserId> users() const TUFT_EXCLUDES(mutex_);

  // kUnauthenticated for an empty key, kPermissionDenied for an unknown one.
  Result<UserId> authenticate(std::string_view presented) const TUFT_EXCLUDES(mutex_);

 private:
  using Hash = config::KeyHash;
  struct FirstBytes {
    size_t operator()(const Hash& hash) const;
  };
  using UserByHash = std::unordered_map<Hash, UserId, FirstBytes>;
  struct Salted {
    std::string salt;
    UserByHash users;
  };
  struct Snapshot {
    std::string salt;  // of this process
    std::vector<UserId> users;
    std::vector<Salted> stored;
    mutable Mutex mutex;
    mutable UserByHash known TUFT_GUARDED_BY(mutex);  // under `salt`: plain keys, and others that were used
  };

  static const UserId* find(const UserByHash& users, const Hash& hash);

  mutable Mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
