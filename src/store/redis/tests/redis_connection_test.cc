// What becomes of a connection that is given up.
#include "store/redis/redis_connection.h"

#include <cerrno>
#include <netinet/in.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/types.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace tuft::store {
namespace {

// A server of TCP that lets a client connect, and then answers nothing.
class MuteServer {
 public:
  MuteServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~MuteServer() {
    if (client_ >= 0) ::close(client_);
    ::close(listener_);
  }
  MuteServer(const MuteServer&) = delete;
  MuteServer& operator=(const MuteServer&) = delete;

  int port() const { return port_; }
  // Answers INFO and PING, which a client sends first, before they come.
  void greet() {
    constexpr std::string_view kAnswers = "$0\r\n\r\n+PONG\r\n";
    client_ = ::accept(listener_, nullptr, nullptr);
    EXPECT_EQ(::send(client_, kAnswers.data(), kAnswers.size(), MSG_NOSIGNAL), static_cast<ssize_t>(kAnswers.size()));
  }
  // Waits for the end of the client. Returns 0 if the client has closed the connection, so that all it sent arrives,
  // and ECONNRESET if it has given it up.
  int end_of_client() const {
    char bytes[4096];
    ssize_t received = 0;
    do {
      received = ::recv(client_, bytes, sizeof bytes, 0);
    } while (received > 0);
    return received == 0 ? 0 : errno;
  }

 private:
  const int listener_;
  int client_ = -1;
  int port_ = 0;
};

// Whatever of it the network still has must not reach Redis after the writes that follow.
TEST(RedisConnection, NothingMoreIsSentOverAConnectionThatTimedOut) {
  MuteServer server;
  RedisUrl url;
  url.host = "127.0.0.1";
  url.port = server.port();
  RedisConnection connection(url, {.connect = 10 * kSecond, .answer = kSecond});
  std::thread greeting([&] { server.greet(); });
  const Status made = connection.connect();
  greeting.join();
  ASSERT_TRUE(made.ok()) << made.error().message;
  connection.append({"SET", "k", "v"});
  const Result<RedisReply> reply = connection.next_reply();
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(connection.is_made());
  EXPECT_EQ(server.end_of_client(), ECONNRESET);
}

}  // namespace
}  // namespace tuft::store
