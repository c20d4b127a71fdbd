// Who an API key belongs to.
//
// A key of the configuration stands there as it is, or as "sha256:<salt>:<hash>", both hex, where hash =
// SHA-256(salt || key). In memory are hashes only: a key that was given as it is is hashed with a salt that this
// process drew. A fast hash serves because keys are random: `tuft hash-key --new` draws 256 bits, and nobody finds
// 2^256 keys by trying, however fast. For words that people choose it would not, so hash-key refuses what is short.
//
// A key is looked up by its hash, so the time says nothing about how much of a key was guessed: who does not know a
// salt cannot choose hashes, and who knows it has the hash as well. The first use of a key that is stored with a salt
// of its own costs one hash for each such salt; then its hash under the process's salt is remembered, so it costs one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "control/types.h"

namespace tuft::control {

// The time depends on the lengths only. For secrets.
bool equal_in_constant_time(std::string_view key, std::string_view presented);

// "sha256:<salt>:<hash>" with a fresh salt.
std::string hash_key(std::string_view key);
// "tml-" and 256 random bits.
std::string new_key();

// Thread-safe. Keys of users with an empty name are left out: they open nothing.
class ApiKeys {
 public:
  explicit ApiKeys(const std::map<std::string, std::string>& user_by_key) { replace(user_by_key); }

  // From now on these are the keys; a request that was let in goes on.
  void replace(const std::map<std::string, std::string>& user_by_key) TUFT_EXCLUDES(mutex_);

  // kUnauthenticated for an empty key, kPermissionDenied for an unknown one.
  Result<UserId> authenticate(std::string_view presented) const TUFT_EXCLUDES(mutex_);

 private:
  using Hash = std::array<unsigned char, 32>;
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
    std::vector<Salted> stored;
    mutable Mutex mutex;
    mutable UserByHash known TUFT_GUARDED_BY(mutex);  // under `salt`: keys given as they are, and those that were used
  };

  static Hash hash_of(std::string_view salt, std::string_view key);
  static const UserId* find(const UserByHash& users, const Hash& hash);

  mutable Mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
