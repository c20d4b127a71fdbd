#include "telemetry/testing/http_receiver.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <condition_variable>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <zlib.h>

#include <openssl/ssl.h>

#include "base/check.h"

namespace tuft::telemetry::testing {
namespace {

struct ContextDelete {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
};
struct SslDelete {
  void operator()(SSL* ssl) const { ::SSL_free(ssl); }
};

// A connection with or without TLS.
class Connection {
 public:
  Connection(int socket, SSL_CTX* context) : socket_(socket) {
    if (context == nullptr) return;
    ssl_.reset(::SSL_new(context));
    ::SSL_set_fd(ssl_.get(), socket_);
    open_ = ::SSL_accept(ssl_.get()) == 1;
  }

  // Appends the received bytes; returns false at the end.
  bool read(std::string& out) {
    char bytes[16384];
    if (!open_) return false;
    const auto size = ssl_ ? ::SSL_read(ssl_.get(), bytes, sizeof bytes) : ::recv(socket_, bytes, sizeof bytes, 0);
    if (size <= 0) return false;
    out.append(bytes, static_cast<size_t>(size));
    return true;
  }
  void write(const std::string& bytes) {
    if (ssl_) {
      ::SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
    } else {
      static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    }
  }

 private:
  const int socket_;
  std::unique_ptr<SSL, SslDelete> ssl_;
  bool open_ = true;
};

HttpRequest parse_head(const std::string& head) {
  HttpRequest request;
  size_t at = head.find("\r\n");
  const size_t path = head.find(' ') + 1;
  request.path = head.substr(path, head.find(' ', path) - path);
  while (at + 2 < head.size()) {
    const size_t start = at + 2;
    at = std::min(head.find("\r\n", start), head.size());
    const size_t colon = head.find(':', start);
    if (colon >= at) continue;
    std::string name = head.substr(start, colon - start);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const size_t value = head.find_first_not_of(' ', colon + 1);
    request.headers[name] = head.substr(value, at - value);
  }
  return request;
}

}  // namespace

struct HttpReceiver::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  HttpAnswer answer;
  std::vector<HttpRequest> requests;
  std::vector<int> sockets;
  std::vector<std::thread> threads;
  bool ending = false;

  std::unique_ptr<SSL_CTX, ContextDelete> context;
  int listener = -1;
  int port = 0;
  std::thread accepting;

  void serve(int socket) {
    Connection connection(socket, context.get());
    std::string bytes;
    for (;;) {
      size_t head_end = 0;
      while ((head_end = bytes.find("\r\n\r\n")) == std::string::npos) {
        if (!connection.read(bytes)) return;
      }
      HttpRequest request = parse_head(bytes.substr(0, head_end));
      bytes.erase(0, head_end + 4);
      const size_t length = std::stoul(request.headers["content-length"]);
      while (bytes.size() < length) {
        if (!connection.read(bytes)) return;
      }
      request.body = bytes.substr(0, length);
      bytes.erase(0, length);
      HttpAnswer reply;
      {
        std::unique_lock lock(mutex);
        requests.push_back(std::move(request));
        reply = answer;
        changed.notify_all();
        if (reply.hang) changed.wait(lock, [this] { return ending; });
        if (ending) return;
      }
      std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " answer\r\n";
      for (const std::string& header : reply.headers) text += header + "\r\n";
      text += "Content-Type: " + reply.content_type + "\r\nContent-Length: " + std::to_string(reply.body.size()) +
              "\r\n\r\n" + reply.body;
      connection.write(text);
    }
  }

  void accept_all() {
    for (;;) {
      const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      const std::lock_guard lock(mutex);
      if (ending || socket < 0) {
        if (socket >= 0) ::close(socket);
        return;
      }
      sockets.push_back(socket);
      threads.emplace_back([this, socket] { serve(socket); });
    }
  }
};

HttpReceiver::HttpReceiver(const TlsFiles* tls) : state_(std::make_unique<State>()) {
  State& state = *state_;
  if (tls != nullptr) {
    state.context.reset(::SSL_CTX_new(::TLS_server_method()));
    TUFT_CHECK(
        ::SSL_CTX_use_certificate_file(state.context.get(), tls->server_certificate().c_str(), SSL_FILETYPE_PEM) == 1 &&
            ::SSL_CTX_use_PrivateKey_file(state.context.get(), tls->server_key().c_str(), SSL_FILETYPE_PEM) == 1,
        "the HTTP receiver's certificate");
    ::SSL_CTX_load_verify_locations(state.context.get(), tls->ca().c_str(), nullptr);
    // The client must present its certificate too.
    ::SSL_CTX_set_verify(state.context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  state.listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  TUFT_CHECK(::bind(state.listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                 ::listen(state.listener, 16) == 0 &&
                 ::getsockname(state.listener, reinterpret_cast<sockaddr*>(&address), &size) == 0,
             "the HTTP receiver found no port");
  state.port = ::ntohs(address.sin_port);
  state.accepting = std::thread([&state] { state.accept_all(); });
}

HttpReceiver::~HttpReceiver() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    for (const int socket : state_->sockets) ::shutdown(socket, SHUT_RDWR);
    ::shutdown(state_->listener, SHUT_RDWR);
    state_->changed.notify_all();
  }
  state_->accepting.join();
  for (std::thread& thread : state_->threads) thread.join();
  for (const int socket : state_->sockets) ::close(socket);
  ::close(state_->listener);
}

std::string HttpReceiver::endpoint() const {
  return (state_->context ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(state_->port);
}

void HttpReceiver::set_answer(HttpAnswer answer) {
  const std::lock_guard lock(state_->mutex);
  state_->answer = std::move(answer);
}

std::vector<HttpRequest> HttpReceiver::requests() const {
  const std::lock_guard lock(state_->mutex);
  return state_->requests;
}

bool HttpReceiver::wait_for_requests(size_t count, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, timeout, [&] { return state_->requests.size() >= count; });
}

std::string gunzip(const std::string& bytes) {
  z_stream stream{};
  TUFT_CHECK(::inflateInit2(&stream, 15 + 16) == Z_OK, "zlib");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // NOLINT: zlib's old signature
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  int end = Z_OK;
  while (end == Z_OK) {
    char piece[16384];
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof piece;
    end = ::inflate(&stream, Z_NO_FLUSH);
    out.append(piece, sizeof piece - stream.avail_out);
  }
  ::inflateEnd(&stream);
  return end == Z_STREAM_END ? out : std::string{};
}

}  // namespace tuft::telemetry::testing
