// A server's end that lets workers in, and what a worker needs to join it.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "join/dialer.h"
#include "join/listener.h"
#include "telemetry/testing/tls_files.h"

namespace tuft::join {

inline constexpr const char* kToken = "0123456789abcdef0123456789abcdef";
inline constexpr int kPatienceMilliseconds = 20'000;

inline bool wait_readable(int descriptor) {
  pollfd wanted{descriptor, POLLIN, 0};
  return ::poll(&wanted, 1, kPatienceMilliseconds) == 1;
}

// Takes every worker but those whose base model is "none" and "later".
class TestHost final : public Host {
 public:
  worker::v1::JoinResponse admit(const worker::v1::JoinRequest& request, const std::string& address) override {
    EXPECT_EQ(address, "127.0.0.1");
    EXPECT_TRUE(request.token().empty()) << "the token goes no further than the listener";
    worker::v1::JoinResponse response;
    if (request.base_model() == "none") response.set_error("there is no such base model");
    if (request.base_model() == "later") response.set_error("come again");
    response.set_may_retry(request.base_model() == "later");
    response.set_telemetry(std::string(response_bytes, 'x'));
    return response;
  }
  std::function<void(End)> connected(const std::string&, std::unique_ptr<Connection> connection) override {
    EXPECT_TRUE(connections.try_push(std::move(connection)) || closed);
    return [this](End end) { EXPECT_TRUE(ends.try_push(End(end))); };
  }
  void gave_up(const std::string&) override {}
  void refused(std::string_view result, const std::string&) override {
    EXPECT_TRUE(refusals.try_push(std::string(result)));
  }

  // Destroys the connections, those that come later too: a worker has its answer before connected() is called.
  void close() {
    closed = true;
    connections.close();
    while (auto connection = connections.try_pop()) connection->reset();
  }

  size_t response_bytes = 0;
  std::atomic<bool> closed = false;
  BoundedQueue<std::unique_ptr<Connection>> connections{8};
  BoundedQueue<End> ends{8};
  BoundedQueue<std::string> refusals{4096};
};

class Join : public ::testing::Test {
 protected:
  void SetUp() override {
    write("token", std::string(kToken) + "\n");
    listen();
  }
  void TearDown() override {
    host_.close();
    listener_.reset();
  }
  std::filesystem::path file(const char* name) const { return files_.directory / name; }
  void write(const char* name, const std::string& text) { std::ofstream(file(name)) << text; }

  ListenerOptions options() const {
    ListenerOptions options;
    options.tls = {{"certificate", file("server.pem")}, {"private_key", file("server.key")}, {}};
    options.token_file = file("token");
    options.lease = 5 * kSecond;
    return options;
  }
  void listen() { listen(options()); }
  void listen(const ListenerOptions& with) {
    listener_.reset();
    auto listener = Listener::start(with, host_, clock_);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    listener_ = std::move(listener).value();
  }
  DialOptions address() const {
    DialOptions options;
    options.host = "localhost";
    options.port = listener_->port();
    options.tls.authority = {"authority", file("ca.pem")};
    return options;
  }
  Result<Joined> join(const worker::v1::JoinRequest& request) { return join(request, address()); }
  Result<Joined> join(const worker::v1::JoinRequest& request, const DialOptions& options, int end_fd = -1) {
    TUFT_ASSIGN(dialer_, Dialer::create(options));
    return dialer_->join(request, end_fd);
  }
  static worker::v1::JoinRequest request(const std::string& base_model = "m", const std::string& token = kToken) {
    worker::v1::JoinRequest request;
    request.set_worker_id("w");
    request.set_base_model(base_model);
    request.set_token(token);
    return request;
  }

  telemetry::testing::TlsFiles files_;
  FakeClock clock_;
  TestHost host_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Dialer> dialer_;
};

}  // namespace tuft::join
