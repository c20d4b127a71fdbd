// Who an API key belongs to.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "control/types.h"

namespace tuft::control {

// The time depends on the lengths only. For secrets.
bool equal_in_constant_time(std::string_view key, std::string_view presented);

// Immutable, so thread-safe. Keys of users with an empty name are left out: they open nothing.
class ApiKeys {
 public:
  explicit ApiKeys(const std::map<std::string, std::string>& user_by_key);

  // kUnauthenticated for an empty key, kPermissionDenied for an unknown one. The time depends on the length of what was
  // sent and on the number and length of the keys, not on how much of a key was guessed.
  Result<UserId> authenticate(std::string_view presented) const;

 private:
  std::vector<std::pair<std::string, UserId>> keys_;
};

}  // namespace tuft::control
