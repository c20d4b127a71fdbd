// Strangers at the port of a server, servers that do not answer, and the workers that join all the same.
#include <arpa/inet.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "join/begin_limit.h"
#include "join/tests/join_fixture.h"

namespace tuft::join {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kStranger = "127.0.0.2";
constexpr int kBurst = BeginLimit::kBurst;

sockaddr_in address_of(const char* host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(::inet_pton(AF_INET, host, &address.sin_addr), 1);
  return address;
}

class Socket {
 public:
  explicit Socket(const char* host, int flags = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)) {
    const sockaddr_in own = address_of(host, 0);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
  }
  ~Socket() { ::close(fd_); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;

  bool connect(uint16_t port) {
    const sockaddr_in to = address_of("127.0.0.1", port);
    return ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  // Lets the kernel take connections, of which nobody hears. Returns the port.
  uint16_t listen(int backlog) {
    EXPECT_EQ(::listen(fd_, backlog), 0);
    sockaddr_in own{};
    socklen_t size = sizeof own;
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size), 0);
    return ntohs(own.sin_port);
  }
  bool readable(int patience) const {
    pollfd wanted{fd_, POLLIN, 0};
    return ::poll(&wanted, 1, patience) == 1;
  }

 private:
  int fd_;
};

class JoinLimits : public Join {
 protected:
  void connect_and_close(const char* from, int times) {
    for (int i = 0; i < times; ++i) EXPECT_TRUE(Socket(from).connect(listener_->port()));
  }
  // Waits for the results of so many connections.
  std::map<std::string, int> results(int count) {
    std::map<std::string, int> results;
    for (int i = 0; i < count; ++i) ++results[host_.refusals.pop().value_or("")];
    return results;
  }
};

TEST_F(JoinLimits, ConnectionsThatAreClosedAtOnceKeepNoWorkerOut) {
  connect_and_close(kStranger, 1000);
  const Result<Joined> joined = join(request());
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_EQ(results(1000), (std::map<std::string, int>{{"tls", kBurst}, {"too_many", 1000 - kBurst}}));
}

TEST_F(JoinLimits, AnAddressGetsItsAllowanceBack) {
  connect_and_close(kStranger, kBurst + 1);
  EXPECT_EQ(results(kBurst + 1)["too_many"], 1);
  clock_.advance(BeginLimit::kEach);
  connect_and_close(kStranger, 2);
  EXPECT_EQ(results(2), (std::map<std::string, int>{{"tls", 1}, {"too_many", 1}}));
}

TEST_F(JoinLimits, AWorkerBehindTheAddressOfAStrangerTriesAgain) {
  connect_and_close("127.0.0.1", kBurst);
  EXPECT_EQ(results(kBurst)["tls"], kBurst);
  const Result<Joined> refused = join(request());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "join_failed") << "what a worker tries again after";
  EXPECT_THAT(refused.error().message, Not(HasSubstr("--join-ca")));
  EXPECT_EQ(results(1)["too_many"], 1);
  clock_.advance(BeginLimit::kEach);
  for (int i = 0; i < 3; ++i) {
    const Result<Joined> joined = join(request());
    EXPECT_TRUE(joined.ok()) << "workers that have the token are not counted: " << joined.error().message;
  }
}

TEST_F(JoinLimits, SilentConnectionsGiveWayTheOldestFirst) {
  ListenerOptions with = options();
  with.connections_max = 4;
  listen(with);
  std::vector<Socket> silent;
  for (int i = 0; i < 4; ++i) {
    silent.emplace_back(kStranger);
    ASSERT_TRUE(silent.back().connect(listener_->port()));
  }
  const Result<Joined> joined = join(request());
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_EQ(host_.refusals.pop(), "too_many");
  EXPECT_TRUE(silent.front().readable(kPatienceMilliseconds)) << "it is closed";
  for (size_t i = 1; i < silent.size(); ++i) EXPECT_FALSE(silent[i].readable(0)) << i;
}

TEST_F(JoinLimits, TheNetworkWithMostConnectionsGivesWayAndInItTheAddressWithMost) {
  ListenerOptions with = options();
  with.connections_max = 5;
  listen(with);
  std::vector<Socket> silent;
  const auto connect_from = [&](const char* host) {
    silent.emplace_back(host);
    ASSERT_TRUE(silent.back().connect(listener_->port()));
  };
  connect_from("127.1.0.1");  // the oldest
  connect_from("127.2.0.1");
  connect_from("127.2.0.2");
  connect_from("127.2.0.2");
  connect_from("127.2.0.3");
  const auto gives_way = [&](size_t which) {
    EXPECT_EQ(host_.refusals.pop(), "too_many");
    EXPECT_TRUE(silent[which].readable(kPatienceMilliseconds)) << which;
  };
  connect_from("127.2.0.4");
  gives_way(2);
  connect_from("127.2.0.4");
  gives_way(1);
  connect_from("127.2.0.5");
  gives_way(5);
  EXPECT_FALSE(silent[0].readable(0)) << "nobody else is in its network";
}

TEST(BeginLimit, ManyAddressesLockNobodyOutAndTakeLittleMemory) {
  BeginLimit limit;
  const int many = 3 * static_cast<int>(BeginLimit::kAddressesMax);
  for (int address = 0; address < many; ++address) {
    EXPECT_TRUE(limit.begin(static_cast<uint64_t>(address), kSecond));
    EXPECT_LE(limit.addresses(), BeginLimit::kAddressesMax);
  }
}

TEST(BeginLimit, AnAddressOfAFullTableIsStillLimited) {
  BeginLimit limit;
  for (uint64_t address = 0; address < BeginLimit::kAddressesMax; ++address) limit.begin(address, kSecond);
  for (int i = 1; i < kBurst; ++i) EXPECT_TRUE(limit.begin(7, kSecond));
  EXPECT_FALSE(limit.begin(7, kSecond));
  limit.take_back(7);
  EXPECT_TRUE(limit.begin(7, kSecond));
  EXPECT_FALSE(limit.begin(7, kSecond));
}

TEST(BeginLimit, TheNetworksOfOneSiteHaveAnAllowanceTogether) {
  BeginLimit limit;
  constexpr uint64_t kSite = 0x20010db8'00010000;  // 2001:db8:1::/48
  int begun = 0;
  for (uint64_t network = kSite; network < kSite + 256; ++network) {
    for (int i = 0; i < kBurst; ++i) begun += limit.begin(network, kSecond) ? 1 : 0;
  }
  EXPECT_EQ(begun, BeginLimit::kShares * kBurst);
  EXPECT_TRUE(limit.begin(kSite + (1 << 16), kSecond)) << "another site";
  for (const uint64_t address : {0x7f000001, 0x7f000002}) EXPECT_TRUE(limit.begin(address, kSecond)) << "IPv4";
  limit.take_back(kSite);
  EXPECT_TRUE(limit.begin(kSite + 300, kSecond)) << "one was a worker";
  EXPECT_FALSE(limit.begin(kSite + 300, kSecond));
  EXPECT_TRUE(limit.begin(kSite + 300, kSecond + BeginLimit::kEach));
}

TEST_F(JoinLimits, AServerThatTakesTheConnectionAndSaysNothingIsNotBlamedForItsCertificate) {
  Socket hung("127.0.0.1");
  DialOptions options = address();
  options.host = "127.0.0.1";
  options.port = hung.listen(1);
  options.timeout = kSecond;
  const Result<Joined> joined = join(request(), options);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().reason, "join_failed");
  EXPECT_THAT(joined.error().message, HasSubstr("no answer within 1 s"));
  EXPECT_THAT(joined.error().message, Not(HasSubstr("--join-ca")));
}

// The network swallows everything, or the queue of connections is full.
TEST_F(JoinLimits, AServerThatDoesNotTakeTheConnectionIsSaidToBeSilent) {
  Socket full("127.0.0.1");
  DialOptions options = address();
  options.host = "127.0.0.1";
  options.port = full.listen(0);
  std::vector<Socket> waiting;
  for (int i = 0; i < 3; ++i) waiting.emplace_back("127.0.0.1", SOCK_NONBLOCK).connect(options.port);
  const Result<Joined> joined = join(request(), options);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().reason, "join_failed");
  EXPECT_THAT(joined.error().message, HasSubstr("no answer within 2 s"));
}

}  // namespace
}  // namespace tuft::join
