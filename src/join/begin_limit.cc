#include "join/begin_limit.h"

#include <algorithm>
#include <cstdint>

namespace tuft::join {
namespace {

constexpr Nanos kEachOfNetwork = BeginLimit::kEach / BeginLimit::kShares;

bool is_ipv6(uint64_t address_group) {
  return address_group > UINT32_MAX;
}

}  // namespace

bool BeginLimit::take(Allowances& allowances, uint64_t who, Nanos each, Nanos now) {
  // To forget all locks nobody out. It gives somebody who has that many no more than these allow together.
  if (allowances.size() >= kAddressesMax && !allowances.contains(who)) allowances.clear();
  Nanos& full_at = allowances[who];
  const Nanos next = std::max(full_at, now) + each;
  if (next > now + kBurst * kEach) return false;
  full_at = next;
  return true;
}

void BeginLimit::give_back(Allowances& allowances, uint64_t who, Nanos each) {
  const auto found = allowances.find(who);
  if (found != allowances.end()) found->second -= each;
}

// The network first: one that has nothing left does not fill the table of addresses.
bool BeginLimit::begin(uint64_t address_group, Nanos now) {
  const uint64_t network = network_of(address_group);
  if (is_ipv6(address_group) && !take(of_network_, network, kEachOfNetwork, now)) return false;
  if (take(of_address_, address_group, kEach, now)) return true;
  if (is_ipv6(address_group)) give_back(of_network_, network, kEachOfNetwork);
  return false;
}

void BeginLimit::take_back(uint64_t address_group) {
  give_back(of_address_, address_group, kEach);
  if (is_ipv6(address_group)) give_back(of_network_, network_of(address_group), kEachOfNetwork);
}

}  // namespace tuft::join
