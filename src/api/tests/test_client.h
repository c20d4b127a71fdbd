// A blocking HTTP client on one socket, and a fixture with a server.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

#include "api/server.h"
#include "api/tests/fake_control.h"

namespace tuft::api {

struct Reply {
  int status = 0;                              // 0: the connection ended first
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  bool has(const std::string& name) const { return headers.count(name) > 0; }
};

class TestClient {
 public:
  explicit TestClient(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    timeval limit{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~TestClient() { close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  void end_sending() { ::shutdown(socket_, SHUT_WR); }

  // Returns false if the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  Reply read_reply() {
    Reply reply;
    size_t end = 0;
    while ((end = input_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) return reply;
    }
    const std::string head = input_.substr(0, end + 2);
    input_.erase(0, end + 4);
    reply.status = std::atoi(head.c_str() + 9);
    for (size_t line = head.find("\r\n") + 2; line < head.size();) {
      const size_t stop = head.find("\r\n", line);
      const size_t colon = head.find(": ", line);
      std::string name = head.substr(line, colon - line);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      reply.headers[name] = head.substr(colon + 2, stop - colon - 2);
      line = stop + 2;
    }
    if (reply.status == 100) return reply;
    const auto size = static_cast<size_t>(std::atoll(reply.headers["content-length"].c_str()));
    while (input_.size() < size) {
      if (!receive()) return reply;
    }
    reply.body = input_.substr(0, size);
    input_.erase(0, size);
    return reply;
  }

  // Returns the text up to the end of `mark`, or all of it if the server closes the connection first.
  std::string read_until(std::string_view mark) {
    size_t found = 0, seen = 0;
    while ((found = input_.find(mark, seen)) == std::string::npos) {
      seen = input_.size() - std::min(input_.size(), mark.size());
      if (!receive()) return std::exchange(input_, {});
    }
    std::string text = input_.substr(0, found + mark.size());
    input_.erase(0, text.size());
    return text;
  }

  // Returns fewer bytes if the server closes the connection first.
  std::string read_bytes(size_t count) {
    while (input_.size() < count && receive()) continue;
    std::string bytes = input_.substr(0, count);
    input_.erase(0, bytes.size());
    return bytes;
  }

  // Returns true if there is something to read now.
  bool has_input() const {
    char byte = 0;
    return !input_.empty() || ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }

  // Returns true if the server has closed the connection and nothing is left to read.
  bool at_end() { return input_.empty() && !receive(); }

 private:
  bool receive() {
    char bytes[65536];
    const ssize_t size = ::recv(socket_, bytes, sizeof(bytes), 0);
    if (size <= 0) return false;
    input_.append(bytes, static_cast<size_t>(size));
    return true;
  }

  int socket_;
  bool connected_ = false;
  std::string input_;
};

using Headers = std::map<std::string, std::string>;

inline std::string request_text(const std::string& method, const std::string& target, const std::string& body,
                                Headers headers = {}) {
  headers.emplace("Host", "localhost");
  headers.emplace("X-API-Key", "tml-alice");
  if (method == "POST") headers.emplace("Content-Length", std::to_string(body.size()));
  std::string text = method + " " + target + " HTTP/1.1\r\n";
  for (const auto& [name, value] : headers) {
    if (!value.empty()) text += name + ": " + value + "\r\n";
  }
  return text + "\r\n" + body;
}

class ServerTest : public ::testing::Test {
 protected:
  ~ServerTest() override { stop(); }

  void start() {
    options.host = "127.0.0.1";
    options.port = 0;
    Result<std::unique_ptr<Server>> made = Server::create(options, control);
    ASSERT_TRUE(made.ok()) << made.error().message;
    server = std::move(made).value();
    runner = std::thread([this] { server->run(); });
  }
  void stop(Nanos grace = 2 * kSecond) {
    if (!server) return;
    server->stop(grace);
    if (runner.joinable()) runner.join();
    server.reset();
  }

  Reply call(const std::string& method, const std::string& target, const std::string& body = "",
             const Headers& headers = {}) {
    control.synchronize();
    TestClient client(server->port());
    client.send(request_text(method, target, body, headers));
    Reply reply = client.read_reply();
    control.synchronize();
    return reply;
  }
  Reply post(const std::string& name, const std::string& body, const Headers& headers = {}) {
    return call("POST", "/api/v1/" + name, body, headers);
  }

  FakeControl control;
  Server::Options options;
  std::unique_ptr<Server> server;
  std::thread runner;
};

// Every refusal is a JSON object with `detail`, and has the headers of a complete answer.
inline void expect_refusal(const Reply& reply, int status, const std::string& part) {
  EXPECT_EQ(reply.status, status);
  EXPECT_EQ(reply.headers.count("transfer-encoding"), 0U);
  EXPECT_EQ(reply.headers.count("content-encoding"), 0U);
  ASSERT_TRUE(reply.has("content-length"));
  EXPECT_EQ(reply.headers.at("content-length"), std::to_string(reply.body.size()));
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  EXPECT_EQ(reply.body.rfind(R"({"detail":")", 0), 0U) << reply.body;
  EXPECT_NE(reply.body.find(part), std::string::npos) << reply.body;
}

}  // namespace tuft::api
