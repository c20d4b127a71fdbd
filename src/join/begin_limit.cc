#include "join/begin_limit.h"

#include <algorithm>

namespace tuft::join {

bool BeginLimit::begin(uint64_t address_group, Nanos now) {
  // To forget all locks nobody out. It gives somebody who has that many addresses no more than these allow together.
  if (full_at_.size() >= kAddressesMax && !full_at_.contains(address_group)) full_at_.clear();
  Nanos& full_at = full_at_[address_group];
  const Nanos next = std::max(full_at, now) + kEach;
  if (next > now + kBurst * kEach) return false;
  full_at = next;
  return true;
}

void BeginLimit::take_back(uint64_t address_group) {
  const auto found = full_at_.find(address_group);
  if (found != full_at_.end()) found->second -= kEach;
}

}  // namespace tuft::join
