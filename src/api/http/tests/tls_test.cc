// Tests of HTTPS.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>

#include "api/tests/test_client.h"
#include "telemetry/testing/tls_files.h"

namespace tuft::api {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class TlsClient {
 public:
  TlsClient(uint16_t port, const std::filesystem::path& authority) : context_(asio::ssl::context::tls_client) {
    context_.load_verify_file(authority.string());
    context_.set_verify_mode(asio::ssl::verify_peer);
    stream_.emplace(io_, context_);
    stream_->next_layer().connect({asio::ip::address_v4::loopback(), port});
    stream_->handshake(asio::ssl::stream_base::client, failure);
  }
  void send(const std::string& text) { asio::write(*stream_, asio::buffer(text), failure); }
  // Reads the head and the part of the body that arrived with it.
  std::string read_until(const std::string& mark) {
    std::string text;
    asio::read_until(*stream_, asio::dynamic_buffer(text), mark, failure);
    return text;
  }
  int version() { return SSL_version(stream_->native_handle()); }
  // Closes as Python does: close_notify, then the end of the connection.
  void leave() {
    static_cast<void>(SSL_shutdown(stream_->native_handle()));
    stream_->next_layer().close(failure);
  }

  error_code failure;

 private:
  asio::io_context io_;
  asio::ssl::context context_;
  std::optional<asio::ssl::stream<tcp::socket>> stream_;
};

// Returns what a client sends first.
std::string client_hello() {
  asio::ssl::context context(asio::ssl::context::tls_client);
  SSL* const ssl = SSL_new(context.native_handle());
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), sent);
  SSL_set_connect_state(ssl);
  SSL_do_handshake(ssl);
  char bytes[4096];
  const int size = BIO_read(sent, bytes, sizeof(bytes));
  SSL_free(ssl);
  return std::string(bytes, static_cast<size_t>(std::max(size, 0)));
}

// A handler that keeps the I/O thread.
struct Stop {
  std::promise<void> begun;
  std::promise<void> may_end;
};

Stop* first_stop = nullptr;
Stop* second_stop = nullptr;

Result<Answer> stop_at(Stop& stop) {
  stop.begun.set_value();
  stop.may_end.get_future().wait();
  return Answer(json_response("{}"));
}

constexpr Route kStopRoutes[] = {
    {.method = Method::kGet, .pattern = "/first", .handler = [](Exchange&) { return stop_at(*first_stop); }},
    {.method = Method::kGet, .pattern = "/second", .handler = [](Exchange&) { return stop_at(*second_stop); }},
};

class Https : public ServerTest {
 protected:
  void SetUp() override {
    options.io_threads = 1;
    options.tls = {files.directory / "server.pem", files.directory / "server.key"};
  }
  std::filesystem::path authority() const { return files.directory / "ca.pem"; }

  telemetry::testing::TlsFiles files;
};

TEST_F(Https, RequestsAreAnsweredOneAfterTheOther) {
  start();
  TlsClient client(server->port(), authority());
  ASSERT_FALSE(client.failure) << client.failure.message();
  EXPECT_GE(client.version(), TLS1_2_VERSION);
  for (int i = 0; i < 3; ++i) {
    client.send(request_text("GET", "/api/v1/healthz", ""));
    EXPECT_EQ(client.read_until("}").substr(0, 15), "HTTP/1.1 200 OK");
  }
}

TEST_F(Https, LargeBodiesAreSentAndReceived) {
  start();
  ASSERT_TRUE(server->reload_tls().ok());
  TlsClient client(server->port(), authority());
  client.send(request_text("POST", "/api/v1/optim_step",
                           R"({"model_id":")" + std::string(200, 'm') + R"(","adam_params":{}})"));
  EXPECT_NE(client.read_until("}").find("\"r1\""), std::string::npos);
  std::string bytes(8 << 20, 'x');
  control.finish_with("r1", control::OperationType::kForward, control::ProtobufResult{bytes + "end"});
  client.send(request_text("POST", "/api/v1/retrieve_future", R"({"request_id":"r1"})",
                           {{"Accept", "application/x-protobuf"}}));
  EXPECT_GT(client.read_until("end").size(), bytes.size());
}

TEST_F(Https, CloseNotifyEndsTheWait) {
  start();
  TlsClient client(server->port(), authority());
  client.send(request_text("POST", "/api/v1/optim_step", R"({"model_id":"m","adam_params":{}})"));
  client.read_until("}");
  client.send(request_text("POST", "/api/v1/retrieve_future", R"({"request_id":"r1"})"));
  control.await_waits(1);
  client.leave();
  control.await_waits(0);
}

TEST_F(Https, PlainHttpIsNotAnswered) {
  start();
  TestClient client(server->port());
  client.send(request_text("GET", "/api/v1/healthz", ""));
  EXPECT_EQ(client.read_reply().status, 0);
}

TEST_F(Https, AUsersRequestDoesNotWaitForTheHandshakesOfStrangers) {
  Stop first, second;
  first_stop = &first;
  second_stop = &second;
  options.routes = kStopRoutes;
  start();
  std::vector<std::unique_ptr<TestClient>> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(std::make_unique<TestClient>(server->port()));
  TlsClient one(server->port(), authority());
  TlsClient user(server->port(), authority());  // the connections before it are accepted, too
  one.send(request_text("GET", "/first", ""));
  first.begun.get_future().wait();
  const std::string hello = client_hello();
  for (const auto& stranger : strangers) stranger->send(hello);
  user.send(request_text("GET", "/second", ""));
  first.may_end.set_value();
  second.begun.get_future().wait();
  const auto answered =
      std::count_if(strangers.begin(), strangers.end(), [](const auto& stranger) { return stranger->has_input(); });
  second.may_end.set_value();
  EXPECT_LT(answered, 50);
  for (const auto& stranger : strangers) EXPECT_EQ(stranger->read_bytes(1), "\x16") << "each gets its handshake";
}

TEST_F(Https, TheCertificateCanBeChanged) {
  start();
  const telemetry::testing::TlsFiles others;
  const auto replace = [&](const char* name) {
    std::filesystem::copy_file(others.directory / name, files.directory / name,
                               std::filesystem::copy_options::overwrite_existing);
  };
  replace("server.key");
  const Status mixed = server->reload_tls();
  ASSERT_FALSE(mixed.ok()) << "the key is not that of the certificate";
  EXPECT_FALSE(TlsClient(server->port(), authority()).failure) << "the former pair stays";
  replace("server.pem");
  ASSERT_TRUE(server->reload_tls().ok());
  EXPECT_TRUE(TlsClient(server->port(), authority()).failure);
  EXPECT_FALSE(TlsClient(server->port(), others.directory / "ca.pem").failure);
}

TEST_F(Https, UnusableFilesFailTheStart) {
  const auto failure_of = [&](const std::filesystem::path& certificate, const std::filesystem::path& key) {
    options.port = 0;
    options.tls = {certificate, key};
    const auto made = Server::create(options, control);
    return made.ok() ? std::string() : made.error().message;
  };
  const auto good = options.tls;
  const auto damaged = files.directory / "damaged";
  std::ofstream(damaged) << "-----BEGIN CERTIFICATE-----\nxx\n";
  EXPECT_EQ(failure_of(good.certificate, good.private_key), "");
  const std::string missing = failure_of(files.directory / "nowhere", good.private_key);
  EXPECT_NE(missing.find("tls.certificate"), std::string::npos) << missing;
  const std::string no_pem = failure_of(damaged, good.private_key);
  EXPECT_NE(no_pem.find("tls.certificate"), std::string::npos) << no_pem;
  const std::string no_key = failure_of(good.certificate, damaged);
  EXPECT_NE(no_key.find("is not a private key in PEM form"), std::string::npos) << no_key;
  const std::string other = failure_of(good.certificate, files.directory / "client.key");
  EXPECT_NE(other.find("is not the key of the certificate"), std::string::npos) << other;
}

}  // namespace
}  // namespace tuft::api
