#include "control/api_keys.h"

#include <algorithm>
#include <cstddef>

namespace tuft::control {

// Touches every byte of both, so that an early difference is not quicker than a late one.
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

}  // namespace

ApiKeys::ApiKeys(const std::map<std::string, std::string>& user_by_key) {
  for (const auto& [key, user] : user_by_key) {
    if (!key.empty() && !user.empty()) keys_.emplace_back(key, UserId(user));
  }
}

Result<UserId> ApiKeys::authenticate(std::string_view presented) const {
  if (presented.empty()) {
    return Error{ErrorCode::kUnauthenticated, "missing API key: send it in the header X-API-Key", "missing_api_key"};
  }
  const UserId* user = nullptr;
  if (presented.size() <= kKeyBytesMax) {
    for (const auto& [key, owner] : keys_) {
      if (equal_in_constant_time(key, presented)) user = &owner;
    }
  }
  if (user == nullptr) {
    return Error{ErrorCode::kPermissionDenied, "invalid API key: it is not in authorized_users of the server",
                 "invalid_api_key"};
  }
  return *user;
}

}  // namespace tuft::control
