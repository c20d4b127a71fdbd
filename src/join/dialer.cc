#include "join/dialer.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fcntl.h>
#include <future>
#include <memory>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include "join/connection.h"
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

constexpr Nanos kConnectTimeout = 2 * kSecond;  // of one address
constexpr size_t kAddressesMax = 16;

// Returns why the server's certificate was not accepted, such as ": certificate is not yet valid". Empty: it was.
std::string why_unverified(TlsStream& stream) {
  const long result = ::SSL_get_verify_result(stream.native_handle());
  return result == X509_V_OK ? std::string() : std::string(": ") + ::X509_verify_cert_error_string(result);
}

std::string no_answer(Nanos timeout) {
  return "no answer within " + std::to_string(timeout / kSecond) + " s";
}

// Closes the socket when the descriptor is readable.
class ClosedAtEnd {
 public:
  ClosedAtEnd(tcp::socket& socket, int end_fd) : end_(socket.get_executor()) {
    const int own = end_fd < 0 ? -1 : ::fcntl(end_fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return;
    end_.assign(own);
    end_.async_wait(asio::posix::descriptor_base::wait_read, [this, &socket, alive = alive_](error_code code) {
      if (code || !*alive) return;
      come_ = true;
      error_code ignored;
      socket.close(ignored);
    });
  }
  ~ClosedAtEnd() { *alive_ = false; }
  ClosedAtEnd(const ClosedAtEnd&) = delete;
  ClosedAtEnd& operator=(const ClosedAtEnd&) = delete;

  bool come() const { return come_; }

 private:
  asio::posix::stream_descriptor end_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool come_ = false;
};

class DialerImpl final : public Dialer {
 public:
  DialerImpl(DialOptions options, std::shared_ptr<TlsContext> context)
      : options_(std::move(options)), context_(std::move(context)) {}

  Result<Joined> join(const worker::v1::JoinRequest& request, int end_fd) override {
    auto joined = std::make_shared<Result<Joined>>(failed("it did not answer in time"));
    asio::co_spawn(
        thread_.io(), [this, &request, end_fd, joined] { return run(request, end_fd, *joined); }, asio::use_future)
        .wait();
    return std::move(*joined);
  }

 private:
  Error failed(const std::string& why) const {
    return unavailable("cannot join the server at " + options_.host + ":" + std::to_string(options_.port) + ": " + why,
                       "join_failed");
  }

  asio::awaitable<void> run(const worker::v1::JoinRequest& request, int end_fd, Result<Joined>& joined) {
    TlsStream stream(thread_.io(), *context_);
    const TimeLimit limit(stream.next_layer(), options_.timeout);
    const ClosedAtEnd end(stream.next_layer(), end_fd);
    co_await dial(stream, end, limit, request, joined);
    if (!joined.ok() && end.come()) joined = failed("this worker is to end");
  }

  asio::awaitable<void> dial(TlsStream& stream, const ClosedAtEnd& end, const TimeLimit& limit,
                             const worker::v1::JoinRequest& request, Result<Joined>& joined) {
    Status connected = co_await connect(stream.next_layer(), end, limit);
    if (!connected.ok()) {
      joined = std::move(connected).error();
      co_return;
    }
    // The time limit closes the socket, which looks like many things.
    const auto fails = [&](const std::string& why) {
      joined = failed(limit.is_over() ? no_answer(options_.timeout) + "; perhaps it has too much to do, or hangs, or " +
                                            "another program listens at this port"
                                      : why);
    };
    error_code code;
    stream.set_verify_callback(asio::ssl::host_name_verification(options_.host), code);
    ::SSL_set_tlsext_host_name(stream.native_handle(), options_.host.c_str());
    co_await stream.async_handshake(asio::ssl::stream_base::client, into(code));
    if (code == asio::error::eof || code == asio::error::connection_reset || code == asio::error::broken_pipe ||
        code == asio::ssl::error::stream_truncated) {
      co_return fails(
          "it ended the connection; perhaps too many connections are joining now, or too many of this "
          "machine's address have failed to");
    }
    if (code) {
      co_return fails("TLS failed (" + code.message() + why_unverified(stream) +
                      "); --join-ca must name the authority of its certificate, and the certificate must be for this "
                      "host, and valid by this machine's clock");
    }
    std::string text;
    worker::v1::JoinResponse response;
    const bool is_sent = co_await write_message(stream, request.SerializeAsString());
    const bool is_read = is_sent && co_await read_message(stream, kResponseBytesMax, text);
    if (!is_read || !response.ParseFromString(text)) {
      co_return fails(
          "it ended the connection without an answer; if it asks workers for certificates, give "
          "--join-certificate and --join-key");
    }
    joined = accept(std::move(stream), std::move(response));
  }

  // Tries the addresses of the host in turn.
  asio::awaitable<Status> connect(tcp::socket& socket, const ClosedAtEnd& end, const TimeLimit& limit) {
    error_code code;
    tcp::resolver resolver(thread_.io());
    asio::steady_timer resolving(thread_.io());
    resolving.expires_after(std::chrono::nanoseconds(options_.timeout));
    resolving.async_wait([&resolver](error_code ended) {
      if (!ended) resolver.cancel();
    });
    const auto found = co_await resolver.async_resolve(options_.host, std::to_string(options_.port), into(code));
    resolving.cancel();
    std::string why = code == asio::error::operation_aborted ? "its name was not resolved in time" : code.message();
    if (code) co_return failed(why);
    for (auto address = found.begin(); address != found.end(); ++address) {
      // A further connection would open the closed socket again.
      if (end.come() || limit.is_over()) break;
      why = co_await connect_to(socket, address->endpoint());
      if (why.empty()) co_return Status();
    }
    co_return failed(limit.is_over() ? no_answer(options_.timeout) : why);
  }

  // Returns why not, or nothing. Closes the socket if that takes too long: the machine may be gone without a word.
  static asio::awaitable<std::string> connect_to(tcp::socket& socket, const tcp::endpoint& address) {
    error_code code;
    socket.close(code);
    const TimeLimit limit(socket, kConnectTimeout);
    co_await socket.async_connect(address, into(code));
    if (limit.is_over()) co_return no_answer(kConnectTimeout) + "; check the address, and the firewalls between";
    co_return code ? code.message() : std::string();
  }

  Result<Joined> accept(TlsStream stream, worker::v1::JoinResponse response) {
    if (!response.error().empty()) {
      if (response.may_retry()) return failed(response.error());
      return Error{ErrorCode::kPermissionDenied, "the server refuses this worker: " + response.error(), "join_refused"};
    }
    const Nanos lease = response.lease_milliseconds() * kMillisecond;
    tune(stream.next_layer(), std::max<Nanos>(lease, kSecond));
    TUFT_ASSIGN(auto connection, start_relay(std::move(stream), {.silence_max = lease}));
    return Joined{std::move(response), std::move(connection)};
  }

  const DialOptions options_;
  const std::shared_ptr<TlsContext> context_;
  IoThread thread_;
};

}  // namespace

Result<std::unique_ptr<Dialer>> Dialer::create(const DialOptions& options) {
  TUFT_ASSIGN(auto context, client_context(options.tls));
  return std::unique_ptr<Dialer>(std::make_unique<DialerImpl>(options, std::move(context)));
}

Result<DialOptions> parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  DialOptions options;
  const auto wrong = [&] {
    return invalid_argument("'" + text + "' is not HOST:PORT, such as tuft.example.com:10620");
  };
  if (colon == std::string::npos || colon == 0) return wrong();
  options.host = text.substr(0, colon);
  if (options.host.starts_with('[') && options.host.ends_with(']')) {
    options.host = options.host.substr(1, options.host.size() - 2);
  } else if (options.host.find(':') != std::string::npos) {
    return wrong();
  }
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, options.port);
  if (options.host.empty() || parsed.ec != std::errc() || parsed.ptr != end || options.port == 0) return wrong();
  return options;
}

Result<std::vector<DialOptions>> parse_addresses(const std::string& text) {
  std::vector<DialOptions> addresses;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    TUFT_ASSIGN(DialOptions one, parse_address(text.substr(begin, end - begin)));
    if (addresses.size() == kAddressesMax) return invalid_argument("--join takes at most 16 addresses");
    addresses.push_back(std::move(one));
    begin = end + 1;
  }
  return addresses;
}

}  // namespace tuft::join
