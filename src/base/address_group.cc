#include "base/address_group.h"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace tuft {
namespace {

constexpr size_t kNetworkBytes = 8;
constexpr size_t kMappedBytes = 12;  // before an IPv4 address
constexpr unsigned kByteBits = 8;

uint64_t number_of(const unsigned char* bytes, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size; ++i) number = number << kByteBits | bytes[i];
  return number;
}

}  // namespace

uint64_t address_group(const sockaddr& address) {
  if (address.sa_family == AF_INET) return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  if (address.sa_family != AF_INET6) return 0;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return number_of(v6.s6_addr + kMappedBytes, sizeof v6 - kMappedBytes);
  return number_of(v6.s6_addr, kNetworkBytes);
}

}  // namespace tuft
