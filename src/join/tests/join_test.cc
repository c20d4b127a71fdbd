// Both ends of a join, over real TLS.
#include <cstdint>
#include <filesystem>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "join/dialer.h"
#include "join/listener.h"
#include "join/tests/join_fixture.h"
#include "join/tls.h"

namespace tuft::join {
namespace {

using ::testing::HasSubstr;

std::string read_all(int descriptor, size_t bytes) {
  std::string text;
  std::string buffer(64 << 10, '\0');
  while (text.size() < bytes && wait_readable(descriptor)) {
    const ssize_t size = ::read(descriptor, buffer.data(), buffer.size());
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  return text;
}

void write_all(int descriptor, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = ::send(descriptor, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (size > 0) {
      done += static_cast<size_t>(size);
    } else {
      pollfd wanted{descriptor, POLLOUT, 0};
      if (::poll(&wanted, 1, kPatienceMilliseconds) != 1) return;
    }
  }
}

TEST_F(Join, BytesPassInBothDirections) {
  host_.response_bytes = 100'000;
  Result<Joined> joined = join(request());
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_EQ(joined->response.lease_milliseconds(), 5'000);
  EXPECT_EQ(joined->response.telemetry().size(), 100'000U);
  const auto at_server = host_.connections.pop();
  const int server = (*at_server)->take_descriptor();
  const int worker = joined->connection->take_descriptor();
  EXPECT_EQ((*at_server)->take_descriptor(), -1);
  std::string large(3 << 20, '\0');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 % 251);
  std::thread sender([&] { write_all(server, large); });
  EXPECT_EQ(read_all(worker, large.size()), large);
  sender.join();
  write_all(worker, "back");
  EXPECT_EQ(read_all(server, 4), "back");
  ::close(server);
  ::close(worker);
}

TEST_F(Join, AnEndIsSeenAtBothEnds) {
  Result<Joined> joined = join(request());
  ASSERT_TRUE(joined.ok());
  const auto at_server = host_.connections.pop();
  EXPECT_EQ((*at_server)->end(), End::kOpen);
  ::close(joined->connection->take_descriptor());
  ASSERT_TRUE(wait_readable((*at_server)->ended_fd()));
  EXPECT_EQ((*at_server)->end(), End::kPeerClosed);
  EXPECT_EQ(host_.ends.pop(), End::kPeerClosed);
  ASSERT_TRUE(wait_readable(joined->connection->ended_fd()));
  EXPECT_EQ(joined->connection->end(), End::kClosed);
}

TEST_F(Join, WhatIsLeftUnreadDoesNotBreakAConnectionThatIsClosed) {
  Result<Joined> joined = join(request());
  ASSERT_TRUE(joined.ok());
  const auto at_server = host_.connections.pop();
  const int server = (*at_server)->take_descriptor();
  write_all(server, "x");
  const int worker = joined->connection->take_descriptor();
  ASSERT_TRUE(wait_readable(worker));
  ::close(worker);
  ASSERT_TRUE(wait_readable((*at_server)->ended_fd()));
  EXPECT_EQ((*at_server)->end(), End::kPeerClosed);
  ASSERT_TRUE(wait_readable(joined->connection->ended_fd()));
  EXPECT_EQ(joined->connection->end(), End::kClosed);
  ::close(server);
}

// The write fails before the read. A worker whose connection broke may come back, one that was disconnected may not.
TEST_F(Join, AConnectionThatIsResetWhileTheServerSendsIsBroken) {
  const auto context = client_context(address().tls);
  ASSERT_TRUE(context.ok());
  boost::asio::io_context io;
  TlsStream worker(io, **context);
  auto& socket = worker.next_layer();
  socket.connect(boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(), listener_->port()));
  worker.handshake(boost::asio::ssl::stream_base::client);
  const std::string asked = request().SerializeAsString();
  const std::string length = {0, 0, 0, static_cast<char>(asked.size())};
  boost::asio::write(worker, boost::asio::buffer(length + asked));
  const auto at_server = host_.connections.pop();
  const int server = (*at_server)->take_descriptor();
  // Until it waits for the worker, which reads nothing: the descriptor takes nothing more.
  const std::string part(64 << 10, 'x');
  pollfd wanted{server, POLLOUT, 0};
  while (::poll(&wanted, 1, 500) == 1) ASSERT_GT(::send(server, part.data(), part.size(), MSG_NOSIGNAL), 0);
  socket.set_option(boost::asio::socket_base::linger(true, 0));
  socket.close();
  EXPECT_EQ(host_.ends.pop(), End::kBroken);
  EXPECT_EQ((*at_server)->end(), End::kBroken);
  ::close(server);
}

TEST_F(Join, AServerThatDisconnectsEndsTheWorkersConnection) {
  Result<Joined> joined = join(request());
  ASSERT_TRUE(joined.ok());
  const auto at_server = host_.connections.pop();
  (*at_server)->close();
  ASSERT_TRUE(wait_readable(joined->connection->ended_fd()));
  EXPECT_EQ(joined->connection->end(), End::kPeerClosed);
  EXPECT_EQ(host_.ends.pop(), End::kClosed);
}

// The worker is stopped, or the network swallows everything.
TEST_F(Join, AWorkerThatHearsNothingForItsLeaseGivesUp) {
  ListenerOptions with = options();
  with.lease = kSecond;
  listen(with);
  Result<Joined> joined = join(request());
  ASSERT_TRUE(joined.ok());
  const auto at_server = host_.connections.pop();
  const int server = (*at_server)->take_descriptor();
  write_all(server, "x");
  const int worker = joined->connection->take_descriptor();
  ASSERT_TRUE(wait_readable(joined->connection->ended_fd()));
  EXPECT_EQ(joined->connection->end(), End::kSilent);
  ::close(server);
  ::close(worker);
}

// Reading the weights may take longer than the lease.
TEST_F(Join, AWorkerThatDoesNotServeYetIsNotHurried) {
  ListenerOptions with = options();
  with.lease = kSecond / 5;
  listen(with);
  Result<Joined> joined = join(request());
  ASSERT_TRUE(joined.ok());
  const auto at_server = host_.connections.pop();
  const int server = (*at_server)->take_descriptor();
  write_all(server, "x");
  pollfd ended{joined->connection->ended_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 1000), 0);
  EXPECT_EQ(joined->connection->end(), End::kOpen);
  ::close(server);
}

TEST_F(Join, AWrongTokenIsRefused) {
  const Result<Joined> joined = join(request("m", "not the token that it should be"));
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().reason, "join_refused");
  EXPECT_THAT(joined.error().message, HasSubstr("token"));
  EXPECT_EQ(host_.refusals.pop(), "token");
}

TEST_F(Join, TheTokenCanChange) {
  write("token", "another token, which is long enough\n");
  ASSERT_TRUE(listener_->reload().ok());
  EXPECT_FALSE(join(request()).ok());
  EXPECT_TRUE(join(request("m", "another token, which is long enough")).ok());
  write("token", "short");
  const Status reloaded = listener_->reload();
  ASSERT_FALSE(reloaded.ok());
  EXPECT_THAT(reloaded.error().message, HasSubstr("openssl rand"));
  EXPECT_TRUE(join(request("m", "another token, which is long enough")).ok());
}

TEST_F(Join, ARefusalSaysWhyAndWhetherToTryAgain) {
  const Result<Joined> none = join(request("none"));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().reason, "join_refused");
  EXPECT_THAT(none.error().message, HasSubstr("no such base model"));
  const Result<Joined> later = join(request("later"));
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().reason, "join_failed");
}

TEST_F(Join, TheServerMustBeWhoItShouldBe) {
  DialOptions other = address();
  other.host = "127.0.0.1";
  other.tls.authority = {"authority", file("other.pem")};
  std::filesystem::copy_file(file("server.pem"), file("other.pem"));
  const Result<Joined> joined = join(request(), other);
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined.error().message, HasSubstr("--join-ca"));
  EXPECT_THAT(joined.error().message, HasSubstr("unable to get local issuer certificate"));
  EXPECT_EQ(host_.refusals.pop(), "tls");
}

TEST_F(Join, ACertificateOfTheWorkerIsEnough) {
  ListenerOptions with = options();
  with.token_file.clear();
  with.tls.authority = {"authority", file("ca.pem")};
  listen(with);
  EXPECT_FALSE(join(request("m", "")).ok());
  DialOptions own = address();
  own.tls.certificate = {"certificate", file("client.pem")};
  own.tls.private_key = {"private_key", file("client.key")};
  const Result<Joined> joined = join(request("m", ""), own);
  EXPECT_TRUE(joined.ok()) << joined.error().message;
}

TEST_F(Join, WithoutTokenAndAuthorityNothingListens) {
  ListenerOptions with = options();
  with.token_file.clear();
  const auto listener = Listener::start(with, host_);
  ASSERT_FALSE(listener.ok());
  EXPECT_EQ(listener.error().reason, "no_access");
}

TEST_F(Join, AnUnreachableServerIsNamed) {
  DialOptions nowhere = address();
  listener_.reset();
  const Result<Joined> joined = join(request(), nowhere);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().reason, "join_failed");
  EXPECT_THAT(joined.error().message, HasSubstr("localhost:" + std::to_string(nowhere.port)));
}

// A server that accepts the connection and says nothing, such as one that hangs.
TEST_F(Join, EndsAtOnceWhenTheWorkerIsToEnd) {
  const int silent = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(silent, 1), 0);
  ASSERT_EQ(::getsockname(silent, reinterpret_cast<sockaddr*>(&at), &size), 0);
  DialOptions options = address();
  options.host = "127.0.0.1";
  options.port = ntohs(at.sin_port);
  const int end_fd = ::eventfd(0, EFD_CLOEXEC);
  int accepted = -1;
  std::thread signal([&] {
    accepted = ::accept(silent, nullptr, nullptr);
    EXPECT_TRUE(wait_readable(accepted)) << "the handshake has begun";
    const uint64_t one = 1;
    EXPECT_EQ(::write(end_fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  });
  const Result<Joined> joined = join(request(), options, end_fd);
  signal.join();
  ::close(accepted);  // not before, because the end of the connection is another reason
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined.error().message, HasSubstr("this worker is to end"));
  // Nor does it begin another one.
  EXPECT_THAT(join(request(), options, end_fd).error().message, HasSubstr("this worker is to end"));
  dialer_.reset();
  ::close(end_fd);
  ::close(silent);
}

TEST(Address, IsSplit) {
  const auto named = parse_address("tuft.example.com:10620");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->host, "tuft.example.com");
  EXPECT_EQ(named->port, 10620);
  EXPECT_EQ(parse_address("[::1]:7")->host, "::1");
  for (const char* wrong : {"", "host", "host:", ":1", "host:0", "host:70000", "host:1x", "::1:7", "[]:7"}) {
    EXPECT_FALSE(parse_address(wrong).ok()) << wrong;
  }
}

TEST(Address, SeveralStandBetweenCommas) {
  const auto two = parse_addresses("a:1,[::1]:2");
  ASSERT_TRUE(two.ok()) << two.error().message;
  ASSERT_EQ(two->size(), 2U);
  EXPECT_EQ((*two)[0].host, "a");
  EXPECT_EQ((*two)[1].host, "::1");
  EXPECT_EQ((*two)[1].port, 2);
  EXPECT_EQ(parse_addresses("a:1")->size(), 1U);
  std::string many = "a:1";
  for (int i = 1; i < 16; ++i) many += ",a:1";
  EXPECT_TRUE(parse_addresses(many).ok());
  EXPECT_FALSE(parse_addresses(many + ",a:1").ok());
  for (const char* wrong : {"", ",", "a:1,", ",a:1", "a:1,,b:2", "a:1, b"}) {
    EXPECT_FALSE(parse_addresses(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace tuft::join
