#include "app/tuft/terminal/http_client.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

// g++ 12 at -O1 reports asio's aligned_alloc for a coroutine frame and asio's own operator delete as a mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace tuft::terminal {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Response = http::response<http::string_body>;

constexpr uint64_t kAnswerBytesMax = 64 << 20;
constexpr size_t kDetailBytesMax = 1000;

auto into(error_code& code) {
  return asio::redirect_error(asio::use_awaitable, code);
}

// A connection, with TLS on top if the address asks for it.
class Transport {
 public:
  using executor_type = tcp::socket::executor_type;

  Transport(asio::io_context& io, asio::ssl::context* tls) : socket_(io) {
    if (tls != nullptr) tls_ = std::make_unique<asio::ssl::stream<tcp::socket&>>(socket_, *tls);
  }

  executor_type get_executor() { return socket_.get_executor(); }
  tcp::socket& socket() { return socket_; }
  asio::ssl::stream<tcp::socket&>* tls() { return tls_.get(); }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  tcp::socket socket_;
  std::unique_ptr<asio::ssl::stream<tcp::socket&>> tls_;
};

bool is_ip_address(const std::string& host) {
  error_code code;
  asio::ip::make_address(host, code);
  return !code;
}

std::string detail_of(const Response& response) {
  const Json body = Json::parse(response.body(), nullptr, false);
  std::string detail = text_of(body, "detail");
  return detail.substr(0, kDetailBytesMax);
}

ErrorCode code_of(unsigned status) {
  if (status == 401) return ErrorCode::kUnauthenticated;
  if (status == 403) return ErrorCode::kPermissionDenied;
  if (status == 404) return ErrorCode::kNotFound;
  if (status == 429 || status >= 502) return ErrorCode::kUnavailable;
  return status >= 500 ? ErrorCode::kInternal : ErrorCode::kInvalidArgument;
}

}  // namespace

struct HttpClient::Impl {
  explicit Impl(ClientOptions chosen) : options(std::move(chosen)) {}

  Status use_tls();
  awaitable<error_code> connect();
  awaitable<error_code> exchange(const std::string& target, Response& response);
  awaitable<error_code> request(const std::string& target, Response& response);
  std::optional<error_code> run(const std::string& target, Response& response);
  Error failure(const error_code& code) const;
  Error refusal(const Response& response) const;
  Result<Json> json_of(const Response& response) const;

  const ClientOptions options;
  asio::io_context io{1};
  std::unique_ptr<asio::ssl::context> tls;
  std::unique_ptr<Transport> transport;  // null: not connected
  boost::beast::flat_buffer buffer;
  bool abandoned = false;  // the request is over; what is left of it must end
  std::atomic<bool> cancelled = false;
};

Status HttpClient::Impl::use_tls() {
  tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_client);
  tls->set_verify_mode(asio::ssl::verify_peer);
  tls->set_verify_callback(asio::ssl::host_name_verification(options.address.host));
  error_code code;
  if (options.ca_file.empty()) {
    tls->set_default_verify_paths(code);
  } else {
    tls->load_verify_file(options.ca_file.string(), code);
  }
  if (!code) return {};
  return invalid_argument("the file " + options.ca_file.string() +
                          " cannot be read as certificates: " + code.message() + "; --ca-file takes a PEM file");
}

awaitable<error_code> HttpClient::Impl::connect() {
  error_code code;
  transport = std::make_unique<Transport>(io, tls.get());
  buffer.clear();
  tcp::resolver resolver(io);
  const auto found =
      co_await resolver.async_resolve(options.address.host, std::to_string(options.address.port), into(code));
  if (code) co_return code;
  co_await asio::async_connect(transport->socket(), found, into(code));
  if (code || transport->tls() == nullptr) co_return code;
  if (!is_ip_address(options.address.host)) {
    SSL_set_tlsext_host_name(transport->tls()->native_handle(), options.address.host.c_str());
  }
  co_await transport->tls()->async_handshake(asio::ssl::stream_base::client, into(code));
  co_return code;
}

awaitable<error_code> HttpClient::Impl::exchange(const std::string& target, Response& response) {
  http::request<http::empty_body> request(http::verb::get, options.address.prefix + target, 11);
  request.set(http::field::host, options.address.authority());
  request.set(http::field::accept, "application/json");
  request.set(http::field::user_agent, options.user_agent);
  request.set("X-API-Key", options.key);
  error_code code;
  co_await http::async_write(*transport, request, into(code));
  if (code) co_return code;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kAnswerBytesMax);
  co_await http::async_read(*transport, buffer, parser, into(code));
  if (!code) response = parser.release();
  co_return code;
}

// Connects again if the server has closed a connection that was used before.
awaitable<error_code> HttpClient::Impl::request(const std::string& target, Response& response) {
  error_code code;
  if (transport) {
    code = co_await exchange(target, response);
    if (!code || abandoned) co_return code;
    transport.reset();
  }
  code = co_await connect();
  if (!code) code = co_await exchange(target, response);
  co_return code;
}

// Returns nothing if the time is over or the request was cancelled.
std::optional<error_code> HttpClient::Impl::run(const std::string& target, Response& response) {
  std::optional<error_code> outcome;
  std::exception_ptr thrown;
  asio::co_spawn(io, request(target, response), [&](std::exception_ptr exception, error_code code) {
    thrown = std::move(exception);
    outcome = code;
  });
  io.restart();
  io.run_for(std::chrono::nanoseconds(options.timeout));
  if (!outcome && !thrown) {
    abandoned = true;
    if (transport) {
      error_code ignored;
      transport->socket().close(ignored);
    }
    while (!outcome && !thrown) {
      io.restart();
      io.run();
    }
    transport.reset();
    abandoned = false;
    return std::nullopt;
  }
  if (thrown) std::rethrow_exception(thrown);
  if (*outcome || !response.keep_alive()) transport.reset();
  return outcome;
}

Error HttpClient::Impl::failure(const error_code& code) const {
  const std::string where = options.address.text();
  if (code.category() == asio::error::get_ssl_category() || code == asio::ssl::error::stream_truncated) {
    return unavailable(
        "the TLS connection to " + where + " failed: " + code.message() +
        "; give the certificate of its authority with --ca-file, and the host by the name that is in its "
        "certificate");
  }
  if (code == http::error::body_limit) return unavailable("the answer of " + where + " is over 64 MiB; ask for less");
  if (code.category() == http::make_error_code(http::error::end_of_stream).category()) {
    return data_loss(where + " does not answer as an HTTP server does: " + code.message() +
                     "; is it https:// instead of http://?");
  }
  return unavailable("cannot reach " + where + ": " + code.message() +
                     "; start the server with 'tuft launch', or name another with --url or TUFT_URL");
}

Error HttpClient::Impl::refusal(const Response& response) const {
  const unsigned status = response.result_int();
  const ErrorCode code = code_of(status);
  const std::string detail = detail_of(response);
  if (code == ErrorCode::kUnauthenticated) {
    return {code, "the server refuses the key: " + (detail.empty() ? "status 401" : detail) + " (TUFT_API_KEY)", ""};
  }
  // An unknown key has this status, too.
  const bool is_key = code == ErrorCode::kPermissionDenied && detail.find("API key") != std::string::npos;
  if (!detail.empty()) return {code, detail + (is_key ? "; set TUFT_API_KEY to another" : ""), ""};
  return {code,
          options.address.text() + " answered with status " + std::to_string(status) +
              "; is it a tuft server of this version?",
          ""};
}

Result<Json> HttpClient::Impl::json_of(const Response& response) const {
  if (response.result() != http::status::ok) return refusal(response);
  Json body = Json::parse(response.body(), nullptr, false);
  if (!body.is_discarded()) return body;
  return data_loss(options.address.text() + " answered with something that is not JSON; is it a tuft server?");
}

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::create(ClientOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (impl->options.address.tls) TUFT_TRY(impl->use_tls());
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

Result<Json> HttpClient::get(const std::string& target) {
  const Error cancelled{ErrorCode::kCancelled, "cancelled", ""};
  if (impl_->cancelled) return cancelled;
  Response response;
  try {
    const std::optional<error_code> outcome = impl_->run(target, response);
    if (impl_->cancelled) return cancelled;
    if (!outcome) {
      return unavailable(impl_->options.address.text() + " did not answer within " +
                         std::to_string(impl_->options.timeout / kSecond) +
                         " s; is it overloaded, or another program?");
    }
    if (*outcome) return impl_->failure(*outcome);
    return impl_->json_of(response);
  } catch (const std::exception& exception) {
    return internal_error(std::string("the request failed: ") + exception.what());
  }
}

void HttpClient::cancel() {
  impl_->cancelled = true;
  // A request that has not begun to run finds it there.
  asio::post(impl_->io, [impl = impl_.get()] { impl->io.stop(); });
}

}  // namespace tuft::terminal
