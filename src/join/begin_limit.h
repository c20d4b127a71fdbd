// How often an address may begin to join, before anything is known of who is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/clock.h"

namespace tuft::join {

// Lets an address begin kBurst times at once, which is more than the workers of a fleet behind one address, and then 4
// times a second. Each address has an allowance of its own, whatever the others do. Confined to one thread.
class BeginLimit {
 public:
  static constexpr int kBurst = 128;
  static constexpr Nanos kEach = kSecond / 4;
  static constexpr size_t kAddressesMax = 4096;

  // Returns whether one of the group (base/address_group.h) may begin now, and counts it if so.
  bool begin(uint64_t address_group, Nanos now);
  // Takes one back that has shown its token or certificate: only strangers are limited.
  void take_back(uint64_t address_group);

  // At most kAddressesMax.
  size_t addresses() const { return full_at_.size(); }

 private:
  std::map<uint64_t, Nanos> full_at_;  // when the allowance is whole again
};

}  // namespace tuft::join
