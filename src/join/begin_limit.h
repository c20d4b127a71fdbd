// How often an address may begin to join, before anything is known of who is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/clock.h"

namespace tuft::join {

// Returns the /48 network of an IPv6 address, the smallest that sites get, and the /16 network of an IPv4 address.
// `address_group`: see base/address_group.h, as below.
constexpr uint64_t network_of(uint64_t address_group) {
  return address_group >> 16;
}

// Lets an address begin kBurst times at once, which is more than the workers of a fleet behind one address, and then 4
// times a second. Each address has an allowance of its own, whatever the others do. But whoever has an IPv6 address has
// many networks of them, so that a /48 has no more than kShares addresses together. Confined to one thread.
class BeginLimit {
 public:
  static constexpr int kBurst = 128;
  static constexpr Nanos kEach = kSecond / 4;
  static constexpr int kShares = 8;
  static constexpr size_t kAddressesMax = 4096;

  // Returns whether one of the group may begin now, and counts it if so.
  bool begin(uint64_t address_group, Nanos now);
  // Takes one back that has shown its token or certificate: only strangers are limited.
  void take_back(uint64_t address_group);

  // At most kAddressesMax.
  size_t addresses() const { return of_address_.size(); }

 private:
  // When each one's allowance is whole again.
  using Allowances = std::map<uint64_t, Nanos>;

  static bool take(Allowances& allowances, uint64_t who, Nanos each, Nanos now);
  static void give_back(Allowances& allowances, uint64_t who, Nanos each);

  Allowances of_address_;
  Allowances of_network_;  // of IPv6
};

}  // namespace tuft::join
