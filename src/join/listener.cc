#include "join/listener.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <list>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <openssl/crypto.h>

#include "base/address_group.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/text.h"
#include "join/begin_limit.h"
#include "join/connection.h"
#include "join/digest.h"
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

constexpr auto kAfterError = std::chrono::milliseconds(20);
constexpr int kJoiningMax = 256;
constexpr int kLooksPerLease = 4;
constexpr size_t kUntakenBytesMax = 64 << 10;
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 4096;

// What decides who may join. Replaced as a whole.
struct Access {
  std::shared_ptr<TlsContext> tls;
  std::optional<Sha256> token;

  bool accepts(std::string_view sent) const {
    if (!token) return true;
    const Sha256 digest = sha256(sent);
    return ::CRYPTO_memcmp(digest.data(), token->data(), digest.size()) == 0;
  }
};

Result<std::shared_ptr<const Access>> read_access(const ListenerOptions& options) {
  auto access = std::make_shared<Access>();
  TUFT_ASSIGN(access->tls, server_context(options.tls));
  if (options.token_file.empty()) {
    if (options.tls.authority.path.empty()) {
      return invalid_argument(
          "join.token_file: is missing; workers need a token to join, or a certificate that "
          "join.worker_authority signed",
          "no_access");
    }
    return std::shared_ptr<const Access>(access);
  }
  const Result<std::string> text = read_file(options.token_file, kTokenBytesMax);
  if (!text.ok()) return invalid_argument("join.token_file: " + text.error().message, "no_access");
  const std::string_view token = trimmed(*text);
  if (token.size() < kTokenBytesMin) {
    return invalid_argument("join.token_file: " + options.token_file.string() + " must hold a token of at least " +
                                std::to_string(kTokenBytesMin) + " characters; make one with: openssl rand -hex 32",
                            "short_token");
  }
  access->token = sha256(token);
  return std::shared_ptr<const Access>(access);
}

// A connection that has not joined yet.
struct Joiner {
  TlsStream stream;
  std::string address;
  uint64_t address_group = 0;
  bool is_accepted = false;  // it has shown its token or certificate
  bool is_crowded_out = false;
};

class ListenerImpl final : public Listener {
 public:
  ListenerImpl(const ListenerOptions& options, Host& host, const Clock& clock)
      : options_(options), host_(host), clock_(clock) {}
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
      if (!code) {
        take(std::move(socket), peer);
        continue;  // without a pause, in which those that flood the port would fill the kernel's queue
      }
      pause.expires_after(kAfterError);  // such as: no descriptor is left
      co_await pause.async_wait(into(code));
    }
  }

  void take(tcp::socket socket, const tcp::endpoint& peer) {
    std::string address = peer.address().to_string();
    const uint64_t group = address_group(*peer.data());
    if (!begun_.begin(group, clock_.monotonic()) || !make_room()) return host_.refused("too_many", address);
    tune(socket, options_.lease);
    joining_.push_back({TlsStream(std::move(socket), *access()->tls), std::move(address), group});
    const auto joiner = std::prev(joining_.end());
    asio::co_spawn(
        thread_.io(), [this, joiner] { return join(*joiner); },
        [this, joiner](const std::exception_ptr&) { joining_.erase(joiner); });
  }

  // If all places are taken, a stranger loses its own: of the network that has most of them the address that has most,
  // and of its connections the oldest. A worker needs its place only for moments, so whoever holds places cannot keep
  // it out, nor whoever takes them again and again from one network.
  bool make_room() {
    const int places = std::min(kJoiningMax, options_.connections_max - joined_);
    if (places <= 0) return false;
    if (joining_.size() < static_cast<size_t>(places)) return true;
    const auto may_lose = [](const Joiner& joiner) {
      return !joiner.is_accepted && joiner.stream.next_layer().is_open();  // else it is about to end
    };
    std::unordered_map<uint64_t, int> of_network;  // the number of places
    std::unordered_map<uint64_t, int> of_address;
    for (const Joiner& joiner : joining_) {
      if (!may_lose(joiner)) continue;
      ++of_network[network_of(joiner.address_group)];
      ++of_address[joiner.address_group];
    }
    Joiner* loser = nullptr;
    std::pair<int, int> most;
    for (Joiner& joiner : joining_) {
      if (!may_lose(joiner)) continue;
      const std::pair taken(of_network[network_of(joiner.address_group)], of_address[joiner.address_group]);
      if (taken <= most) continue;
      loser = &joiner;
      most = taken;
    }
    if (loser == nullptr) return false;
    loser->is_crowded_out = true;
    error_code ignored;
    loser->stream.next_layer().close(ignored);
    return true;
  }

  void failed(const Joiner& joiner, std::string_view result) {
    host_.refused(joiner.is_crowded_out ? "too_many" : result, joiner.address);
  }

  asio::awaitable<void> join(Joiner& joiner) {
    TlsStream& stream = joiner.stream;
    const TimeLimit limit(stream.next_layer(), kJoinTimeout);
    error_code code;
    co_await stream.async_handshake(asio::ssl::stream_base::server, into(code));
    if (code) co_return failed(joiner, "tls");
    std::string text;
    worker::v1::JoinRequest request;
    const bool is_read = co_await read_message(stream, kRequestBytesMax, text);
    if (!is_read) co_return failed(joiner, "request");
    if (!request.ParseFromString(text)) {
      failed(joiner, "request");
      co_return co_await refuse(stream, "the request cannot be read; is the worker of the same version as the server?");
    }
    if (!access()->accepts(trimmed(request.token()))) {
      failed(joiner, "token");
      co_return co_await refuse(stream, "the token is wrong; it must be that of the server's join.token_file");
    }
    joiner.is_accepted = true;
    begun_.take_back(joiner.address_group);
    request.clear_token();
    worker::v1::JoinResponse response = host_.admit(request, joiner.address);
    if (!response.error().empty()) {
      (void)co_await write_message(stream, response.SerializeAsString());
      co_return;
    }
    response.set_lease_milliseconds(options_.lease / kMillisecond);
    const bool is_sent = co_await write_message(stream, response.SerializeAsString());
    if (!is_sent) co_return host_.gave_up(request.worker_id());
    relay(std::move(stream), request.worker_id());
  }

  static asio::awaitable<void> refuse(TlsStream& stream, std::string why) {
    worker::v1::JoinResponse response;
    response.set_error(std::move(why));
    (void)co_await write_message(stream, response.SerializeAsString());
  }

  void relay(TlsStream stream, const std::string& worker_id) {
    // The host has its callback only when it has the connection.
    const auto on_end = std::make_shared<std::function<void(End)>>();
    auto connection = start_relay(std::move(stream), {.untaken_bytes_max = kUntakenBytesMax,
                                                      .progress_period = options_.lease / kLooksPerLease,
                                                      .on_end = [this, on_end](End end) {
                                                        --joined_;
                                                        (*on_end)(end);
                                                      }});
    if (!connection.ok()) return host_.gave_up(worker_id);
    ++joined_;
    *on_end = host_.connected(worker_id, std::move(connection).value());
  }

  const ListenerOptions options_;
  Host& host_;
  const Clock& clock_;
  uint16_t port_ = 0;
  int joined_ = 0;  // of the thread, as the next
  BeginLimit begun_;
  Mutex mutex_;
  std::shared_ptr<const Access> access_ TUFT_GUARDED_BY(mutex_);
  IoThread thread_;
  tcp::acceptor acceptor_{thread_.io()};
  std::list<Joiner> joining_;  // of the thread, the oldest first
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::start(const ListenerOptions& options, Host& host, const Clock& clock) {
  auto listener = std::make_unique<ListenerImpl>(options, host, clock);
  TUFT_TRY(listener->listen());
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace tuft::join
