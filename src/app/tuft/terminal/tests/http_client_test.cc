// The client against a server of this test that answers with given bytes.
#include "app/tuft/terminal/http_client.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"

namespace tuft::terminal {
namespace {

using boost::asio::ip::tcp;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Answers each request with the next of `answers`; "" closes the connection instead, and nothing is answered after the
// last.
class FakeServer {
 public:
  explicit FakeServer(std::vector<std::string> answers)
      : answers_(std::move(answers)), acceptor_(io_, tcp::endpoint(tcp::v4(), 0)), thread_([this] { run(); }) {}
  ~FakeServer() {
    stopping_ = true;
    boost::system::error_code ignored;
    tcp::socket wake(io_);
    wake.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()); }
  const std::string& received() const { return received_; }
  int connections() const { return connections_; }

 private:
  void run() {
    size_t next = 0;
    while (!stopping_) {
      boost::system::error_code code;
      tcp::socket socket(io_);
      acceptor_.accept(socket, code);
      if (stopping_ || code) return;
      ++connections_;
      std::string buffer;
      while (true) {
        const size_t head = boost::asio::read_until(socket, boost::asio::dynamic_buffer(buffer), "\r\n\r\n", code);
        if (code) break;
        received_ += buffer.substr(0, head);
        buffer.erase(0, head);
        if (next >= answers_.size()) continue;
        const std::string& answer = answers_[next++];
        if (answer.empty()) break;
        boost::asio::write(socket, boost::asio::buffer(answer), code);
      }
    }
  }

  boost::asio::io_context io_;
  const std::vector<std::string> answers_;
  tcp::acceptor acceptor_;
  std::string received_;
  std::atomic<int> connections_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

std::string http(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

std::unique_ptr<HttpClient> client_of(const std::string& url, Nanos timeout = 10 * kSecond) {
  return std::move(*HttpClient::create({.address = *parse_address(url), .key = "tml-secret", .timeout = timeout}));
}

std::string message_of(const std::string& answer) {
  const FakeServer server({answer});
  return client_of(server.url())->get("/x").error().message;
}

TEST(HttpClient, SendsTheKeyAndKeepsTheConnection) {
  std::string received;
  {
    const FakeServer server({http(200, R"({"a":1})"), http(200, "[2]")});
    const auto client = client_of(server.url());
    EXPECT_EQ(client->get("/one?x=1")->dump(), R"({"a":1})");
    EXPECT_EQ(client->get("/two")->dump(), "[2]");
    EXPECT_EQ(server.connections(), 1);
    received = server.received();
  }
  EXPECT_THAT(received, AllOf(HasSubstr("GET /one?x=1 HTTP/1.1\r\n"), HasSubstr("GET /two HTTP/1.1\r\n"),
                              HasSubstr("X-API-Key: tml-secret\r\n"), HasSubstr("Host: 127.0.0.1:")));
}

TEST(HttpClient, ConnectsAgainWhenTheServerHasClosed) {
  const FakeServer server({http(200, "1"), "", http(200, "2")});
  const auto client = client_of(server.url());
  EXPECT_TRUE(client->get("/").ok());
  const Result<Json> second = client->get("/");
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->dump(), "2");
  EXPECT_EQ(server.connections(), 2);
}

TEST(HttpClient, ErrorsSayWhatToDo) {
  EXPECT_THAT(message_of(http(401, R"({"detail":"the key is unknown"})")),
              AllOf(HasSubstr("the key is unknown"), HasSubstr("TUFT_API_KEY")));
  EXPECT_EQ(message_of(http(422, R"({"detail":"from: not a time"})")), "from: not a time");
  EXPECT_THAT(message_of(http(500, "<html>")), HasSubstr("status 500"));
  EXPECT_THAT(message_of(http(302, "")), HasSubstr("status 302"));
  EXPECT_THAT(message_of(http(200, "<html>")), HasSubstr("not JSON"));
  EXPECT_THAT(message_of("SSH-2.0-OpenSSH_9.2\r\n"), HasSubstr("does not answer as an HTTP server"));
  const auto nobody = client_of("http://127.0.0.1:1");
  EXPECT_THAT(nobody->get("/").error().message,
              AllOf(HasSubstr("cannot reach http://127.0.0.1:1"), HasSubstr("tuft launch")));
  EXPECT_THAT(nobody->get("/").error().message, Not(HasSubstr("tml-secret")));
}

TEST(HttpClient, CodesTellWhatMayPassByItself) {
  const FakeServer server(
      {http(401, "{}"), http(403, "{}"), http(404, "{}"), http(429, "{}"), http(503, "{}"), http(422, "{}")});
  const auto client = client_of(server.url());
  for (const ErrorCode code : {ErrorCode::kUnauthenticated, ErrorCode::kPermissionDenied, ErrorCode::kNotFound,
                               ErrorCode::kUnavailable, ErrorCode::kUnavailable, ErrorCode::kInvalidArgument}) {
    EXPECT_EQ(client->get("/").error().code, code);
  }
}

TEST(HttpClient, WaitsOnlySoLong) {
  const FakeServer server({});
  const auto client = client_of(server.url(), 50 * kMillisecond);
  EXPECT_EQ(client->get("/").error().code, ErrorCode::kUnavailable);
}

TEST(HttpClient, IsCancelledFromAnotherThread) {
  const FakeServer server({});
  const auto client = client_of(server.url());
  std::thread other([&] {
    while (server.connections() == 0) std::this_thread::yield();
    client->cancel();
  });
  EXPECT_EQ(client->get("/").error().code, ErrorCode::kCancelled);
  other.join();
  EXPECT_EQ(client->get("/").error().code, ErrorCode::kCancelled);
}

TEST(HttpClient, NamesAFileOfAuthoritiesThatCannotBeRead) {
  const TempDir directory;
  const auto made = HttpClient::create(
      {.address = *parse_address("https://h"), .key = "k", .ca_file = directory.path() / "none.pem"});
  EXPECT_THAT(made.error().message, AllOf(HasSubstr("none.pem"), HasSubstr("--ca-file")));
}

TEST(HttpClient, TlsToAServerWithoutItFailsInWords) {
  const FakeServer server({http(400, "{}"), http(400, "{}")});
  const auto client = std::move(*HttpClient::create(
      {.address = *parse_address("https://" + server.url().substr(7)), .key = "k", .timeout = 300 * kMillisecond}));
  EXPECT_EQ(client->get("/").error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace tuft::terminal
