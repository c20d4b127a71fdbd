// A client's TCP socket, with TLS on top if the server has a certificate. At most one read and one write may be in
// progress at a time.
#pragma once

#include <memory>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

namespace tuft::api {

using TlsContext = boost::asio::ssl::context;

class Transport {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;
  using ErrorCode = boost::system::error_code;

  // `socket` must be non-blocking. `tls` may be null; it is used during construction only.
  Transport(Socket socket, TlsContext* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_ = std::make_unique<boost::asio::ssl::stream<Socket&>>(socket_, *tls);
  }

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }
  boost::asio::ssl::stream<Socket&>* tls() { return tls_.get(); }

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

  // Reads what is available without waiting; sets would_block if there is nothing.
  template <typename Buffers>
  size_t read_now(const Buffers& buffers, ErrorCode& code) {
    return tls_ ? tls_->read_some(buffers, code) : socket_.read_some(buffers, code);
  }
  // Writes what fits without waiting. With TLS it writes nothing, because a partly written record would be lost.
  template <typename Buffers>
  size_t write_now(const Buffers& buffers, ErrorCode& code) {
    if (!tls_) return socket_.write_some(buffers, code);
    code = boost::asio::error::would_block;
    return 0;
  }

 private:
  Socket socket_;
  std::unique_ptr<boost::asio::ssl::stream<Socket&>> tls_;
};

}  // namespace tuft::api
