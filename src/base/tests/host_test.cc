#include "base/host.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <gtest/gtest.h>

#include "base/address_group.h"

namespace tuft {
namespace {

TEST(Host, HasACoreAndAName) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_FALSE(host_name().empty());
}

uint64_t group_of_v4(const char* text) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  EXPECT_EQ(::inet_pton(AF_INET, text, &address.sin_addr), 1);
  return address_group(reinterpret_cast<const sockaddr&>(address));
}

uint64_t group_of_v6(const char* text) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  EXPECT_EQ(::inet_pton(AF_INET6, text, &address.sin6_addr), 1);
  return address_group(reinterpret_cast<const sockaddr&>(address));
}

TEST(AddressGroup, IsAnIpv4AddressHoweverItIsWritten) {
  EXPECT_EQ(group_of_v4("10.0.0.1"), 0x0a000001U);
  EXPECT_EQ(group_of_v6("::ffff:10.0.0.1"), group_of_v4("10.0.0.1"));
  EXPECT_NE(group_of_v4("10.0.0.2"), group_of_v4("10.0.0.1"));
}

TEST(AddressGroup, IsTheNetworkOfAnIpv6Address) {
  EXPECT_EQ(group_of_v6("2001:db8:1:2::1"), group_of_v6("2001:db8:1:2:ffff::9"));
  EXPECT_NE(group_of_v6("2001:db8:1:2::1"), group_of_v6("2001:db8:1:3::1"));
}

}  // namespace
}  // namespace tuft
