// Ids as distinct types: a SessionId does not convert to a RunId, and text converts explicitly only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace tuft {

template <typename Tag>
class Id {
 public:
  Id() = default;
  explicit Id(std::string value) : value_(std::move(value)) {}
  explicit Id(std::string_view value) : value_(value) {}
  explicit Id(const char* value) : value_(value) {}

  const std::string& str() const { return value_; }
  bool empty() const { return value_.empty(); }

  friend bool operator==(const Id&, const Id&) = default;
  friend auto operator<=>(const Id&, const Id&) = default;

 private:
  std::string value_;
};

// Returns a random version 4 UUID (RFC 4122) in lower case: unguessable, without ':' or '/'. Thread-safe.
std::string random_uuid();

// Returns 64 random bits from a generator of the thread, seeded by the operating system. Not for secrets. Thread-safe.
uint64_t random_u64();

}  // namespace tuft

template <typename Tag>
struct std::hash<tuft::Id<Tag>> {
  size_t operator()(const tuft::Id<Tag>& id) const { return std::hash<std::string>{}(id.str()); }
};
