#include "join/listener.h"

#include <array>
#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <string_view>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/file.h"
#include "base/mutex.h"
#include "base/text.h"
#include "join/io_thread.h"
#include "join/message.h"
#include "join/relay.h"

// g++ 12 at -O1 reports asio's aligned_alloc for a coroutine frame and asio's own operator delete as a mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace tuft::join {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr Nanos kJoinTimeout = 10 * kSecond;
constexpr Nanos kRefusalTimeout = kSecond;
constexpr auto kBetweenConnections = std::chrono::milliseconds(20);
constexpr int kJoiningMax = 64;
constexpr int kJoiningOfAddressMax = 16;
constexpr size_t kUntakenBytesMax = 64 << 10;
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 4096;

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Digest digest_of(std::string_view text) {
  Digest digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

// What decides who may join. Replaced as a whole.
struct Access {
  std::shared_ptr<TlsContext> tls;
  std::optional<Digest> token;

  bool accepts(std::string_view sent) const {
    if (!token) return true;
    const Digest digest = digest_of(sent);
    return ::CRYPTO_memcmp(digest.data(), token->data(), digest.size()) == 0;
  }
};

Result<std::shared_ptr<const Access>> read_access(const ListenerOptions& options) {
  auto access = std::make_shared<Access>();
  TUFT_ASSIGN(access->tls, server_context(options.tls));
  if (options.token_file.empty()) {
    if (options.tls.authority.empty()) {
      return invalid_argument("workers need a token or a certificate to join; give one of the two files", "no_access");
    }
    return std::shared_ptr<const Access>(access);
  }
  TUFT_ASSIGN(const std::string text, read_file(options.token_file, kTokenBytesMax));
  const std::string_view token = trimmed(text);
  if (token.size() < kTokenBytesMin) {
    return invalid_argument(options.token_file.string() + " must hold a token of at least " +
                                std::to_string(kTokenBytesMin) + " characters; make one with: openssl rand -hex 32",
                            "short_token");
  }
  access->token = digest_of(token);
  return std::shared_ptr<const Access>(access);
}

class ListenerImpl final : public Listener {
 public:
  ListenerImpl(const ListenerOptions& options, Host& host) : options_(options), host_(host) {}
  ~ListenerImpl() override { thread_.stop(); }

  Status listen() {
    TUFT_TRY(reload());
    const std::string where = options_.host + ":" + std::to_string(options_.port);
    error_code code;
    tcp::resolver resolver(thread_.io());
    std::string host = options_.host;
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const auto found = resolver.resolve(host, std::to_string(options_.port), tcp::resolver::passive, code);
    if (!code) {
      const tcp::endpoint endpoint = found.begin()->endpoint();
      acceptor_.open(endpoint.protocol(), code);
      if (!code) acceptor_.set_option(tcp::acceptor::reuse_address(true), code);
      if (!code) acceptor_.bind(endpoint, code);
      if (!code) acceptor_.listen(asio::socket_base::max_listen_connections, code);
    }
    if (code) {
      return unavailable("cannot listen on " + where + " (join.port): " + code.message() +
                         "; choose another port, or stop what uses it");
    }
    port_ = acceptor_.local_endpoint(code).port();
    asio::co_spawn(
        thread_.io(), [this] { return accept(); }, asio::detached);
    return {};
  }

  uint16_t port() const override { return port_; }

  Status reload() override {
    TUFT_ASSIGN(auto access, read_access(options_));
    MutexLock lock(mutex_);
    access_ = std::move(access);
    return {};
  }

  void close() override {
    asio::post(thread_.io(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
  }

 private:
  std::shared_ptr<const Access> access() {
    MutexLock lock(mutex_);
    return access_;
  }

  asio::awaitable<void> accept() {
    asio::steady_timer pause(thread_.io());
    error_code code;
    while (acceptor_.is_open()) {
      tcp::socket socket(thread_.io());
      tcp::endpoint peer;
      co_await acceptor_.async_accept(socket, peer, into(code));
      if (!code && !take(std::move(socket), peer.address())) continue;
      pause.expires_after(kBetweenConnections);
      co_await pause.async_wait(into(code));
    }
  }

  // Returns false for a connection that is closed at once.
  bool take(tcp::socket socket, const asio::ip::address& peer) {
    const std::string address = peer.to_string();
    const std::string group = group_of(peer);
    const auto found = joining_of_.find(group);
    const int of_address = found == joining_of_.end() ? 0 : found->second;
    if (joining_ >= kJoiningMax || of_address >= kJoiningOfAddressMax ||
        joining_ + joined_ >= options_.connections_max) {
      host_.refused("too_many", address);
      return false;
    }
    ++joining_;
    ++joining_of_[group];
    tune(socket, options_.lease);
    asio::co_spawn(
        thread_.io(),
        [this, stream = TlsStream(std::move(socket), *access()->tls), address]() mutable {
          return join(std::move(stream), address);
        },
        [this, group](const std::exception_ptr&) {
          --joining_;
          if (--joining_of_[group] == 0) joining_of_.erase(group);
        });
    return true;
  }

  // A host has a whole network of IPv6.
  static std::string group_of(const asio::ip::address& address) {
    if (address.is_v4()) return address.to_string();
    constexpr size_t kNetworkBytes = 8;
    const auto bytes = address.to_v6().to_bytes();
    return {reinterpret_cast<const char*>(bytes.data()), kNetworkBytes};
  }

  asio::awaitable<void> join(TlsStream stream, std::string address) {
    const auto limit = std::make_unique<TimeLimit>(stream.next_layer(), kJoinTimeout);
    error_code code;
    co_await stream.async_handshake(asio::ssl::stream_base::server, into(code));
    if (code) co_return host_.refused("tls", address);
    std::string text;
    worker::v1::JoinRequest request;
    const bool is_read = co_await read_message(stream, kRequestBytesMax, text);
    if (!is_read) co_return host_.refused("hello", address);
    if (!request.ParseFromString(text)) {
      host_.refused("hello", address);
      worker::v1::JoinResponse refusal;
      refusal.set_error("the request cannot be read; is the worker of the same version as the server?");
      co_return co_await refuse(stream, refusal);
    }
    if (!access()->accepts(trimmed(request.token()))) {
      host_.refused("token", address);
      worker::v1::JoinResponse refusal;
      refusal.set_error("the token is wrong; it must be that of the server's join.token_file");
      co_await refuse(stream, refusal);
      co_return;
    }
    request.clear_token();
    worker::v1::JoinResponse response = host_.admit(request, address);
    if (!response.error().empty()) co_return co_await refuse(stream, response);
    response.set_lease_milliseconds(options_.lease / kMillisecond);
    const bool is_sent = co_await write_message(stream, response.SerializeAsString());
    if (is_sent) relay(std::move(stream), request.worker_id());
    if (!is_sent) host_.gave_up(request.worker_id());
  }

  // A worker that was refused cannot try at once with the next token: its place is held for a while.
  asio::awaitable<void> refuse(TlsStream& stream, const worker::v1::JoinResponse& response) {
    (void)co_await write_message(stream, response.SerializeAsString());
    asio::steady_timer pause(thread_.io());
    pause.expires_after(std::chrono::nanoseconds(kRefusalTimeout));
    error_code ignored;
    co_await pause.async_wait(into(ignored));
  }

  void relay(TlsStream stream, const std::string& worker_id) {
    // The host has its callback only when it has the connection.
    const auto on_end = std::make_shared<std::function<void(End)>>();
    auto connection =
        start_relay(std::move(stream), {.untaken_bytes_max = kUntakenBytesMax, .on_end = [this, on_end](End end) {
                                          --joined_;
                                          (*on_end)(end);
                                        }});
    if (!connection.ok()) return host_.gave_up(worker_id);
    ++joined_;
    *on_end = host_.connected(worker_id, std::move(connection).value());
  }

  const ListenerOptions options_;
  Host& host_;
  uint16_t port_ = 0;
  int joining_ = 0, joined_ = 0;  // of the thread, as the next
  std::map<std::string, int> joining_of_;
  Mutex mutex_;
  std::shared_ptr<const Access> access_ TUFT_GUARDED_BY(mutex_);
  IoThread thread_;
  tcp::acceptor acceptor_{thread_.io()};
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::start(const ListenerOptions& options, Host& host) {
  auto listener = std::make_unique<ListenerImpl>(options, host);
  TUFT_TRY(listener->listen());
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace tuft::join
