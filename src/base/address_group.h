// The part of a client's address by which connections are limited.
#pragma once

#include <cstdint>
#include <sys/socket.h>

namespace tuft {

// Returns the IPv4 address, also of one that is mapped into IPv6, or the /64 prefix of an IPv6 address, because a host
// has a whole network of these; 0 for other families.
uint64_t address_group(const sockaddr& address);

}  // namespace tuft
