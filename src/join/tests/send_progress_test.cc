#include "join/send_progress.h"

#include <array>
#include <chrono>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace tuft::join {
namespace {

class Sending : public ::testing::Test {
 protected:
  void SetUp() override {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(::listen(listener, 1), 0);
    ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    sender_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(sender_, reinterpret_cast<sockaddr*>(&address), size), 0);
    receiver_ = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    ASSERT_EQ(::fcntl(sender_, F_SETFL, O_NONBLOCK), 0);
    ASSERT_EQ(::fcntl(receiver_, F_SETFL, O_NONBLOCK), 0);
  }
  void TearDown() override {
    ::close(sender_);
    ::close(receiver_);
  }

  // Writes until nothing more is taken.
  void fill() const {
    const std::vector<char> bytes(64 << 10);
    while (::send(sender_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
  }
  void read_all() const {
    std::vector<char> bytes(64 << 10);
    while (::recv(receiver_, bytes.data(), bytes.size(), 0) > 0) {
    }
  }

  int sender_ = -1, receiver_ = -1;
};

TEST_F(Sending, APeerThatDoesNotReadTakesNothingMore) {
  fill();
  SendProgress before = send_progress(sender_);
  // What its kernel takes at once may still be on its way.
  for (SendProgress now = before;; before = now) {
    fill();
    now = send_progress(sender_);
    if (now.acknowledged_bytes == before.acknowledged_bytes && now.waiting_bytes > 0) break;
    std::this_thread::yield();
  }
  EXPECT_GT(before.acknowledged_bytes, 0U);
  EXPECT_GT(before.waiting_bytes, 0U);
}

TEST_F(Sending, APeerThatReadsAdvances) {
  fill();
  const SendProgress before = send_progress(sender_);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  SendProgress now = before;
  while (now.acknowledged_bytes < before.acknowledged_bytes + (1 << 16) && std::chrono::steady_clock::now() < end) {
    read_all();
    fill();
    now = send_progress(sender_);
  }
  EXPECT_GE(now.acknowledged_bytes, before.acknowledged_bytes + (1 << 16));
}

TEST_F(Sending, NothingWaitsOnceAllIsRead) {
  ASSERT_EQ(::send(sender_, "x", 1, MSG_NOSIGNAL), 1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (send_progress(sender_).acknowledged_bytes < 1 && std::chrono::steady_clock::now() < end) {
  }
  EXPECT_EQ(send_progress(sender_).waiting_bytes, 0U);
}

TEST(SendProgress, OfAnotherDescriptorIsNothing) {
  std::array<int, 2> pair{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
  EXPECT_EQ(send_progress(pair[0]).acknowledged_bytes, 0U);
  for (const int each : pair) ::close(each);
}

}  // namespace
}  // namespace tuft::join
